// Host kernels at the shapes of GPT-2 124M, batch 4: h = 768, 12 heads of 64, vocabulary 50304.
//
//   kernels_bench --benchmark_filter=Matmul/f32
//   kernels_bench --benchmark_filter='Peak|T256' --benchmark_enable_random_interleaving
//                 --benchmark_repetitions=5
//
// Peak is what one thread's fused multiply-adds reach on registers alone: the bound of every f32
// product at that moment. On a virtual machine it changes by a half with what its neighbours do, so
// shares of it need both from interleaved runs.
//
// GFLOP/s counts 2 m n k for a product, and for attention the causal half of its products: 2 of
// them forward, 5 backward.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <string>
#include <vector>

#include "ir/program/workspace.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/operands.h"
#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime {
namespace {

using program::OperandType;
using program::OpKind;

constexpr int64_t kBatch = 4, kHidden = 768, kHeads = 12, kHeadSize = 64, kVocab = 50304;

// One op on small numbers (the speed of the matrix unit depends on values only if they are
// denormal).
class BenchedOp {
 public:
  BenchedOp(OpKind kind, program::OpAttributes attributes, std::vector<OperandType> types,
            size_t numInputs)
      : types_(std::move(types)) {
    op_.kind = kind;
    op_.attributes = attributes;
    for (size_t i = 0; i < types_.size(); ++i) {
      (i < numInputs ? op_.inputs : op_.outputs).push_back(static_cast<int32_t>(i));
      data_.emplace_back(static_cast<size_t>(types_[i].bytes()));
      fill(i);
      addresses_.push_back(data_.back().data());
    }
    workspace_.resize(static_cast<size_t>(program::kernelWorkspaceBytes(op_, types_)));
  }

  void run(benchmark::State& state, int numThreads, double flops) {
    ThreadPool pool(numThreads);
    const KernelCallArgs args{&op_,      types_.data(),     addresses_.data(),
                              &context_, workspace_.data(), &pool};
    for (auto _ : state)
      if (!runLibraryOp(args).ok()) state.SkipWithError("refused");
    state.counters["GFLOP/s"] =
        benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  }

 private:
  program::SegmentOp op_;
  std::vector<OperandType> types_;
  std::vector<std::vector<char>> data_;
  std::vector<void*> addresses_;
  std::vector<char> workspace_;
  program::KernelContext context_;

  void fill(size_t operand) {
    const Tensor t{data_[operand].data(), &types_[operand]};
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set(i, types_[operand].dtype == DType::kI32 ? static_cast<double>(i * 7919 % kVocab)
                                                    : static_cast<double>(i % 17) / 64 - 0.1);
  }
};

void matmul(benchmark::State& state, OpKind kind, DType type, int64_t sequence, int64_t out,
            int64_t in) {
  const OperandType x{type, {sequence, kBatch, in}}, y{type, {sequence, kBatch, out}};
  const OperandType w{type, {out, in}}, dw{DType::kF32, {out, in}};
  std::vector<OperandType> types = {x, w, y};
  if (kind == OpKind::kMatmulGradInput) types = {y, w, x};
  if (kind == OpKind::kMatmulGradWeight) types = {y, x, dw};
  BenchedOp(kind, {}, types, 2)
      .run(state, static_cast<int>(state.range(0)),
           2.0 * static_cast<double>(sequence * kBatch * out * in));
}

void attention(benchmark::State& state, bool backward, DType type, int64_t sequence,
               double probability) {
  program::OpAttributes attributes;
  attributes.headSize = kHeadSize;
  attributes.headsPerGroup = 1;
  attributes.probability = probability;
  attributes.stream = RngStream::kAttentionDropout;
  const OperandType qkv{type, {sequence, kBatch, kHeads, 3 * kHeadSize}};
  const OperandType ctx{type, {sequence, kBatch, kHeads, kHeadSize}};
  const OperandType lse{DType::kF32, {kBatch, kHeads, sequence}};
  std::vector<OperandType> types = {qkv, ctx, lse};
  if (backward) types = {qkv, ctx, lse, ctx, qkv};
  BenchedOp(backward ? OpKind::kAttentionGrad : OpKind::kAttention, attributes, types,
            backward ? 4 : 1)
      .run(state, static_cast<int>(state.range(0)),
           (backward ? 5.0 : 2.0) * static_cast<double>(kBatch * sequence * sequence * kHidden));
}

void lossGrad(benchmark::State& state, DType type, int64_t sequence) {
  program::OpAttributes attributes;
  attributes.logicalVocab = 50257;
  attributes.scale = 1e-3;
  const OperandType logits{type, {sequence, kBatch, kVocab}};
  const OperandType stat{DType::kF32, {sequence, kBatch}}, labels{DType::kI32, {sequence, kBatch}};
  BenchedOp(OpKind::kLossGrad, attributes, {logits, stat, stat, labels, logits}, 4)
      .run(state, static_cast<int>(state.range(0)), 0);
  state.SetBytesProcessed(state.iterations() * 2 * logits.bytes());
}

struct Layer {
  const char* name;
  int64_t out, in;
};
constexpr Layer kLayers[] = {{"qkv", 3 * kHidden, kHidden},
                             {"attentionOut", kHidden, kHidden},
                             {"mlpUp", 4 * kHidden, kHidden},
                             {"mlpDown", kHidden, 4 * kHidden},
                             {"logits", kVocab, kHidden}};
constexpr OpKind kProducts[] = {OpKind::kMatmul, OpKind::kMatmulGradInput,
                                OpKind::kMatmulGradWeight};
const char* const kProductNames[] = {"Matmul", "MatmulGradInput", "MatmulGradWeight"};

// Twenty chains of fused multiply-adds: more than two ports of latency 4 or 5 can have in flight.
__attribute__((target("avx512f"))) void multiplyAdd(int64_t times) {
  constexpr int kChains = 20;
  __m512 sums[kChains] = {};
  const __m512 x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(1e-9f);
  for (int64_t i = 0; i < times; ++i)
#pragma GCC unroll 20
    for (__m512& sum : sums)
      __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(sum) : "v"(x), "v"(y));
}

void peak(benchmark::State& state) {
  constexpr int64_t kTimes = 1 << 20;
  for (auto _ : state) multiplyAdd(kTimes);
  state.counters["GFLOP/s"] = benchmark::Counter(kTimes * 20 * 16 * 2 * 1e-9,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

template <typename Body>
void add(const std::string& name, DType type, int64_t sequence, Body body) {
  const std::string full =
      name + "/" + std::string(dtypeName(type)) + "/T" + std::to_string(sequence);
  benchmark::RegisterBenchmark(full.c_str(), body)
      ->ArgName("threads")
      ->Arg(1)
      ->Arg(2)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void addAll() {
  if (__builtin_cpu_supports("avx512f"))
    benchmark::RegisterBenchmark("Peak/f32/avx512", peak)->UseRealTime();
  for (DType type : {DType::kF32, DType::kBf16})
    for (int64_t sequence : {64, 256}) {
      for (size_t i = 0; i < 3; ++i)
        for (const Layer& layer : kLayers)
          add(std::string(kProductNames[i]) + "/" + layer.name, type, sequence,
              [=](benchmark::State& state) {
                matmul(state, kProducts[i], type, sequence, layer.out, layer.in);
              });
      for (double probability : {0.0, 0.1}) {
        const std::string suffix = probability > 0 ? "/dropout" : "";
        add("Attention" + suffix, type, sequence,
            [=](benchmark::State& state) { attention(state, false, type, sequence, probability); });
        add("AttentionGrad" + suffix, type, sequence,
            [=](benchmark::State& state) { attention(state, true, type, sequence, probability); });
      }
      add("LossGrad", type, sequence,
          [=](benchmark::State& state) { lossGrad(state, type, sequence); });
    }
}

}  // namespace
}  // namespace trireme::runtime

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  trireme::runtime::addAll();
  benchmark::RunSpecifiedBenchmarks();
}
