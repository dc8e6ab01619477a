// Finding what a test wants to change in a program, and what the verifier says of it then.
#pragma once
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/program/program.h"
#include "ir/program/verify.h"

namespace trireme::testing {

// Empty of a legal program.
inline std::string errorOf(const program::Program& p) {
  return program::verifyProgram(p).message();
}

inline std::vector<program::Instruction>& code(program::Program& p, int role, int body) {
  return p.roles[static_cast<size_t>(role)].bodies[static_cast<size_t>(body)].instructions;
}

// The first instruction of a kind (and, if given, on a stream).
inline program::Instruction& find(program::Program& p, int role, int body,
                                  program::InstructionKind kind,
                                  std::optional<program::Stream> stream = std::nullopt) {
  for (program::Instruction& in : code(p, role, body))
    if (in.kind == kind && (!stream || in.stream == *stream)) return in;
  throw std::runtime_error("no such instruction");
}

// The position of the first call of a segment.
inline size_t callOf(program::Program& p, int role, int body, const std::string& segment) {
  const std::vector<program::Instruction>& list = code(p, role, body);
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == program::InstructionKind::kCompute &&
        p.segments[static_cast<size_t>(list[i].segment)].name == segment)
      return i;
  throw std::runtime_error("nothing calls " + segment);
}

inline int32_t bufferIndex(const program::Program& p, int role, const std::string& name) {
  const std::vector<program::Buffer>& buffers = p.roles[static_cast<size_t>(role)].buffers;
  for (size_t b = 0; b < buffers.size(); ++b)
    if (buffers[b].name == name) return static_cast<int32_t>(b);
  throw std::runtime_error("no buffer " + name);
}
inline program::Buffer& bufferNamed(program::Program& p, int role, const std::string& name) {
  return p.roles[static_cast<size_t>(role)]
      .buffers[static_cast<size_t>(bufferIndex(p, role, name))];
}

// Gives `taker` the memory of `freed`.
inline void moveOnto(program::Program& p, int role, const std::string& taker,
                     const std::string& freed) {
  const program::Buffer place = bufferNamed(p, role, freed);
  program::Buffer& buffer = bufferNamed(p, role, taker);
  buffer.offset = place.offset;
  buffer.layerStride = place.layerStride;
  buffer.slotStride = place.slotStride;
}

}  // namespace trireme::testing
