// Bandwidth of generated kernels on one thread, beside a copy of the same size: each is bound by
// memory, so the figure to compare is GB/s. Bytes are those that must move: operands that outlive
// the segment.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "codegen/codegen.h"

namespace trireme {
namespace {

using program::OpAttributes;
using program::OpKind;
using program::Segment;

struct Case {
  Segment segment;

  int32_t operand(DType dtype, std::vector<int64_t> dims, bool temporary = false) {
    segment.operands.push_back({dtype, std::move(dims)});
    segment.temporary.push_back(temporary);
    return static_cast<int32_t>(segment.operands.size()) - 1;
  }
};

struct Chain {
  Case c;
  DType type;
  int64_t rows, width;

  int32_t token(bool temporary = false) { return c.operand(type, {rows, 1, width}, temporary); }
  int32_t column() { return c.operand(type, {width}); }
  int32_t stat() { return c.operand(DType::kF32, {rows, 1}); }
  int32_t sum() { return c.operand(DType::kF32, {width}); }
  void op(OpKind kind, std::vector<int32_t> in, std::vector<int32_t> out, OpAttributes a = {}) {
    c.segment.ops.push_back({kind, a, std::move(in), std::move(out)});
  }
};

const OpAttributes kDropout{.probability = 0.1, .stream = RngStream::kMlpOutDropout};

using Maker = void (*)(Chain&);
void add(Chain& c) {
  const auto x = c.token(), y = c.token(), z = c.token();
  c.op(OpKind::kAdd, {x, y}, {z});
}
void biasGelu(Chain& c) {
  const auto x = c.token(), bias = c.column(), t = c.token(true), z = c.token();
  c.op(OpKind::kBiasAdd, {x, bias}, {t});
  c.op(OpKind::kGelu, {t}, {z});
}
void geluGrad(Chain& c) {
  const auto u = c.token(), dz = c.token(), du = c.token();
  c.op(OpKind::kGeluGrad, {u, dz}, {du});
}
void dropout(Chain& c) {
  const auto x = c.token(), y = c.token();
  c.op(OpKind::kDropout, {x}, {y}, kDropout);
}
void layerNorm(Chain& c) {
  const auto x = c.token(), g = c.column(), b = c.column(), y = c.token();
  const auto mean = c.stat(), rstd = c.stat();
  c.op(OpKind::kLayerNorm, {x, g, b}, {y, mean, rstd}, {.epsilon = 1e-5});
}
void biasDropoutAddNorm(Chain& c) {
  const auto x = c.token(), bias = c.column(), r = c.token(), t = c.token(true), u = c.token(true);
  const auto s = c.token(), g = c.column(), b = c.column(), y = c.token();
  const auto mean = c.stat(), rstd = c.stat();
  c.op(OpKind::kBiasAdd, {x, bias}, {t});
  c.op(OpKind::kDropout, {t}, {u}, kDropout);
  c.op(OpKind::kAdd, {u, r}, {s});
  c.op(OpKind::kLayerNorm, {s, g, b}, {y, mean, rstd}, {.epsilon = 1e-5});
}
void rmsNorm(Chain& c) {
  const auto x = c.token(), g = c.column(), y = c.token(), rstd = c.stat();
  c.op(OpKind::kRmsNorm, {x, g}, {y, rstd}, {.epsilon = 1e-5});
}
void layerNormGrad(Chain& c) {
  const auto x = c.token(), g = c.column(), mean = c.stat(), rstd = c.stat(), dy = c.token();
  const auto dx = c.token(), dg = c.sum(), db = c.sum();
  c.op(OpKind::kLayerNormGrad, {x, g, mean, rstd, dy}, {dx, dg, db});
}
void biasGrad(Chain& c) {
  const auto dy = c.token(), db = c.sum();
  c.op(OpKind::kBiasGrad, {dy}, {db});
}
void rotary(Chain& c) {
  const int64_t groups = c.width / 384;
  const auto x = c.c.operand(c.type, {c.rows, 1, groups, 384});
  const auto y = c.c.operand(c.type, {c.rows, 1, groups, 384});
  c.op(OpKind::kRotary, {x}, {y}, {.headSize = 128, .headsPerGroup = 1, .ropeTheta = 10000});
}
void swiGlu(Chain& c) {
  const auto u = c.c.operand(c.type, {c.rows, 1, 2, c.width}), z = c.token();
  c.op(OpKind::kSwiGlu, {u}, {z});
}

void* load(const std::string& object) {
  char path[] = "/tmp/trireme-bench-XXXXXX";
  const int file = mkstemp(path);
  if (write(file, object.data(), object.size()) != static_cast<ssize_t>(object.size()))
    std::abort();
  close(file);
  void* handle = dlopen(path, RTLD_NOW);
  unlink(path);
  return handle;
}

void run(benchmark::State& state, Maker make, DType type) {
  Chain chain{{}, type, state.range(0), state.range(1)};
  make(chain);
  const Segment& segment = chain.c.segment;
  auto compiled = codegen::compileSegments({segment}, {});
  if (!compiled) return state.SkipWithError(compiled.error().message().c_str());
  void* handle = load(compiled->sharedObject);
  std::vector<void*> memory;
  int64_t bytes = 0;
  for (size_t i = 0; i < segment.operands.size(); ++i) {
    const auto size = static_cast<size_t>(segment.operands[i].bytes());
    memory.push_back(std::aligned_alloc(64, (size + 63) / 64 * 64));
    std::memset(memory.back(), 0, size);
    if (!segment.temporary[i]) bytes += static_cast<int64_t>(size);
  }
  const program::KernelContext context;
  for (auto _ : state)
    for (const program::KernelCall& call : compiled->segments[0].calls) {
      std::vector<void*> arguments;
      for (int32_t operand : call.operands) arguments.push_back(memory[operand]);
      reinterpret_cast<program::GeneratedKernel>(dlsym(handle, call.symbol.c_str()))(
          &context, arguments.data(), 0, call.extent);
    }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * bytes);
  for (void* p : memory) std::free(p);
  dlclose(handle);
}

void copy(benchmark::State& state) {
  const auto size = static_cast<size_t>(state.range(0) * state.range(1) * 4);
  std::vector<char> a(size, 1), b(size, 2);
  for (auto _ : state) {
    std::memcpy(b.data(), a.data(), size);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * 2 * size));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  const std::pair<const char*, Maker> makers[] = {{"add", add},
                                                  {"bias_gelu", biasGelu},
                                                  {"gelu_grad", geluGrad},
                                                  {"dropout", dropout},
                                                  {"layer_norm", layerNorm},
                                                  {"bias_dropout_add_norm", biasDropoutAddNorm},
                                                  {"rms_norm", rmsNorm},
                                                  {"layer_norm_grad", layerNormGrad},
                                                  {"bias_grad", biasGrad},
                                                  {"rotary", rotary},
                                                  {"swiglu", swiGlu}};
  const std::vector<std::vector<int64_t>> sizes = {{64, 3072}, {4096, 12288}};
  for (const auto& size : sizes) benchmark::RegisterBenchmark("memcpy", copy)->Args(size);
  for (const auto& [name, make] : makers)
    for (DType type : {DType::kF32, DType::kBf16})
      for (const auto& size : sizes) {
        const std::string label = fmt::format("{}/{}", name, dtypeName(type));
        benchmark::RegisterBenchmark(label.c_str(), [make = make, type](benchmark::State& s) {
          run(s, make, type);
        })->Args(size);
      }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
