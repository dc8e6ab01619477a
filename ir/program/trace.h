// What happened when: the common form of a measured run and of a simulated one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/program/program.h"

namespace trireme::program {

struct TraceEvent {
  int32_t rank = 0;
  Stream stream = Stream::kCompute;
  InstructionKind kind = InstructionKind::kCompute;
  Direction direction = Direction::kForward;
  int32_t chunk = 0, microbatch = 0, layer = -1;
  int32_t segment = -1;
  int64_t step = 0;
  double beginSeconds = 0, endSeconds = 0;  // since the start of the trace
  int64_t bytes = 0;                        // payload of communication
};

// Chrome trace-event JSON, which Perfetto opens: one process per rank, one thread per stream.
std::string toPerfettoJson(const Program& program, const std::vector<TraceEvent>& events);

}  // namespace trireme::program
