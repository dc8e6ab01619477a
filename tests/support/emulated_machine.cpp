#include "tests/support/emulated_machine.h"

#include <algorithm>
#include <string_view>

#include "ir/program/workspace.h"

namespace trireme::testing {
namespace {

namespace cuda = runtime::cuda;

// Of blocks of so many queries by keys, none of them above the diagonal; forward, and of the two
// kernels of the backward each half of 5/2 as much.
double attentionFlops(const cuda::OpArgs& a, bool forward) {
  constexpr int64_t kBlock = program::AttentionBlocking::kRows;
  double scores = 0;
  for (int64_t first = 0; first < a.sequence; first += kBlock) {
    const int64_t end = std::min(a.sequence, first + kBlock);
    scores += static_cast<double>((end - first) * end);
  }
  scores *= static_cast<double>(a.batch * a.groups * a.headsPerGroup);
  return 4 * scores * static_cast<double>(a.headSize) * (forward ? 1 : 1.25);
}

bool startsWith(const std::string& text, std::string_view part) { return text.starts_with(part); }

}  // namespace

double secondsOn(const EmulatedRates& rates, const EmulatedTask& task) {
  if (task.name == "copy") return 2 * task.bytes / rates.memory;
  if (task.name == "fill") return task.bytes / rates.memory;
  if (task.name == "matmul_bf16") return rates.launch + 2 * task.products / rates.matmulBf16;
  if (task.name == "matmul_f16") return rates.launch + 2 * task.products / rates.matmulF16;
  if (task.name == "matmul_f32") return rates.launch + 2 * task.products / rates.matmulF32;
  if (task.name == "matmul_tf32") return rates.launch + 2 * task.products / rates.matmulTf32;
  if (task.name == "adamw_f32") {
    const auto& args = *static_cast<const cuda::AdamWArgs*>(task.args);
    double elements = 0;
    for (int64_t i = 0; i < args.numBuckets; ++i)
      elements += static_cast<double>(args.buckets[i].elements);
    return 28 * elements / rates.memory;
  }
  if (task.name == "squares_pieces_f32") {
    const auto& args = *static_cast<const cuda::SquaresArgs*>(task.args);
    return 4 * static_cast<double>(args.numPieces * cuda::kSquaresPiece) / rates.memory;
  }
  if (task.name == "adamw_scale" || task.name == "squares_rows") return 0;
  if (startsWith(task.name, "attention")) {
    const bool isTiled = task.name.find("_tiles_") != std::string::npos;
    const auto& args = *static_cast<const cuda::OpArgs*>(task.args);
    const double flops = attentionFlops(args, !startsWith(task.name, "attention_grad"));
    const double tiled = task.name.ends_with("_f16") ? rates.attentionF16 : rates.attentionBf16;
    return rates.launch + flops / (isTiled ? tiled : rates.attentionF32);
  }
  const double n = task.members;
  if (task.name == "send" || task.name == "receive") return task.bytes / rates.pairBandwidth;
  if (task.members > 1) {
    const double passes = task.name == "all_reduce" ? 2 : 1;
    return rates.allReduceLatency + passes * (n - 1) / n * task.bytes / rates.busBandwidth;
  }
  return rates.launch;
}

EmulatedGpuOptions emulatedMachine(const EmulatedRates& rates, int numDevices) {
  EmulatedGpuOptions options;
  options.numDevices = numDevices;
  options.isIdle = true;
  options.duration = [rates](const EmulatedTask& task) { return secondsOn(rates, task); };
  return options;
}

}  // namespace trireme::testing
