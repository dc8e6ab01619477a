// Text and binary forms of a program.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::program {

// The readable listing, with real names. For people and golden tests; not parsed.
std::string printListing(const Program& program);

// The versioned binary form: magic, version, length, checksum, payload. Round-trips exactly.
std::string serialize(const Program& program);
// kInvalidArgument: not a program, truncated, corrupted, or written by a newer version (says
// which). Safe on any input: never crashes, never allocates more than a small multiple of the
// input.
Result<Program> deserialize(const std::string& bytes);

}  // namespace trireme::program
