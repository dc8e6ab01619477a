// Proves a program safe over all ranks.
//
// (V1)  indices (segments, buffers, buckets, bodies, chunks, groups, events, repeats) are in range
//       and operand types match their buffers
// (V2)  every access lies inside the arena, for every layer, slot, tp and dp index
// (V3)  every send has its one receive: same tag, bytes and dtype; none is left over
// (V4)  members of a group issue the same collectives (kind, op, elements, dtype) in one order
// (V5)  no deadlock, even if a send blocks until it is received and a collective until all arrive
// (V6)  nothing is read before it is written (in this step or as persistent state)
// (V7)  nothing is overwritten or freed while it is still needed: two accesses of overlapping bytes
//       from different streams, one of them a write, are ordered by events
// (V8)  each (virtual stage, microbatch) has one forward and one backward, the latter after the former on
//       the same slot; a slot has one tenant at a time
// (V9)  exactly one step, after all backwards; every bucket is reduced and stepped once
//
// kInvalidArgument: the message starts with the label and names rank, task and instruction.
#pragma once
#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::program {

Status verifyProgram(const Program& program);

}  // namespace trireme::program
