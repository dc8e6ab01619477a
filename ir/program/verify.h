// Proves a program safe over all ranks.
//
// (V1)  indices (segments, buffers, buckets, bodies, chunks, groups, events, repeats) are in range,
//       operand types match their buffers, a segment sees the weights of its own layer, only
//       streams take what they are for, and every buffer is used
// (V2)  every access lies inside the arena, for every layer, slot, tp and dp index
// (V3)  every send has its one receive: same tag, bytes and dtype; none is left over, and none is
// of
//       gradients of weights
// (V4)  members of a group issue the same collectives (kind, op, elements, dtype, and what has made
//       the input) on the same streams in one order, none reduces what is already reduced, and a
//       microbatch is communicated over tp only, but for the gradients that its backward completes
// (V5)  no deadlock, even if a send blocks until it is received and a collective until all arrive
// (V6)  nothing is read before it is written (in this step or as persistent state), nor from
//       scratch that another task or iteration has written; a task sends what it has itself written
//       and not used
// (V7)  nothing is overwritten or freed while it is still needed: within a stream by order and by
//       the buffer through which it was written, and two accesses of overlapping bytes from
//       different streams, one of them a write, are ordered by events; a member sends its own part
// (V8)  each (virtual stage, microbatch) has one forward and one backward, and either all or none
// of
//       them one task of weights' gradients, each after the one before on the same slot, in the
//       order of microbatches and by bodies of that chunk and direction; a slot has one tenant at a
//       time, until the last of these; a task computes every layer once
// (V9)  exactly one step, after all of these; every parameter is used and gets its gradient, every
//       bucket is stepped once and reduced over everybody who holds a term and nobody else, by the
//       step or by the last task that adds to it, the loss is summed, and every result is used
// (V10) a term of a sum over tp is summed before anything else reads it
//
// A step starts when the previous one is complete. Persistent state: parameters, master weights and
// moments; gradients and loss only if the step ends with a kZero of them, else a first task of
// direction kStep prepares them. Tens of milliseconds for thousands of ranks: only distinct ranks
// are looked at.
//
// kInvalidArgument: the message starts with the label and names rank, task and instruction.
#pragma once
#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::program {

Status verifyProgram(const Program& program);

}  // namespace trireme::program
