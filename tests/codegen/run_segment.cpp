#include "tests/codegen/run_segment.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "ir/graph/semantics.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/kernels.h"
#include "tests/codegen/warp_kernels.h"
#include "tests/support/shared_object.h"

namespace trireme::codegen {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr std::byte kGuard{0xA5};
constexpr std::byte kPoison{0xFF};  // A NaN in every float type.

}  // namespace

Memory::Memory(const Segment& segment, const std::vector<int32_t>& sharedWith)
    : types_(segment.operands), storage_(segment.operands.size()) {
  for (size_t i = 0; i < types_.size(); ++i) {
    const bool shares = i < sharedWith.size() && sharedWith[i] >= 0;
    owner_.push_back(shares ? sharedWith[i] : static_cast<int32_t>(i));
    storage_[i].assign(static_cast<size_t>(types_[i].bytes()) + kGuardBytes, kPoison);
    std::fill(storage_[i].end() - kGuardBytes, storage_[i].end(), kGuard);
  }
}

void* Memory::data(int32_t operand) const { return storage_[owner_[operand]].data(); }

std::vector<void*> Memory::pointers() const {
  std::vector<void*> all;
  for (size_t i = 0; i < types_.size(); ++i) all.push_back(data(static_cast<int32_t>(i)));
  return all;
}

double Memory::at(int32_t operand, int64_t i) const {
  switch (types_[operand].dtype) {
    case DType::kF64:
      return static_cast<double*>(data(operand))[i];
    case DType::kF32:
      return static_cast<float*>(data(operand))[i];
    case DType::kBf16:
      return runtime::toFloat(static_cast<runtime::Bf16*>(data(operand))[i]);
    case DType::kF16:
      return runtime::toFloat(static_cast<runtime::F16*>(data(operand))[i]);
    default:
      return static_cast<int32_t*>(data(operand))[i];
  }
}

void Memory::set(int32_t operand, int64_t i, double value) {
  switch (types_[operand].dtype) {
    case DType::kF64:
      static_cast<double*>(data(operand))[i] = value;
      break;
    case DType::kF32:
      static_cast<float*>(data(operand))[i] = static_cast<float>(value);
      break;
    case DType::kBf16:
      static_cast<runtime::Bf16*>(data(operand))[i] = runtime::toBf16(value);
      break;
    case DType::kF16:
      static_cast<runtime::F16*>(data(operand))[i] = runtime::toF16(value);
      break;
    default:
      static_cast<int32_t*>(data(operand))[i] = static_cast<int32_t>(value);
  }
}

std::string Memory::bytes(int32_t operand) const {
  return {static_cast<const char*>(data(operand)), static_cast<size_t>(types_[operand].bytes())};
}

bool Memory::guardsAreIntact() const {
  for (const auto& bytes : storage_)
    for (size_t i = bytes.size() - kGuardBytes; i < bytes.size(); ++i)
      if (bytes[i] != kGuard) return false;
  return true;
}

void runReferenceCall(const program::SegmentOp& op, const Segment& source,
                      const std::vector<void*>& operands, const program::KernelContext& context) {
  const runtime::KernelCallArgs args{
      &op, source.operands.data(), operands.data(), &context, nullptr, nullptr};
  const Status status = runtime::runReferenceOp(args);
  ASSERT_TRUE(status.ok()) << status.message();
}

LoadedKernels::LoadedKernels(CompiledKernels compiled) : compiled_(std::move(compiled)) {
  if (!compiled_.sharedObject.empty()) handle_ = testing::loadSharedObject(compiled_.sharedObject);
}

LoadedKernels::~LoadedKernels() {
  if (handle_) dlclose(handle_);
}

void LoadedKernels::run(size_t index, const Segment& source, const Memory& memory,
                        const program::KernelContext& context, int64_t piece) const {
  const std::vector<void*> operands = memory.pointers();
  for (const program::KernelCall& call : compiled_.segments[index].calls) {
    if (call.kind == program::KernelCallKind::kLibrary) {
      runReferenceCall(call.op, source, operands, context);
      continue;
    }
    auto kernel = reinterpret_cast<program::GeneratedKernel>(dlsym(handle_, call.symbol.c_str()));
    ASSERT_NE(kernel, nullptr) << call.symbol;
    std::vector<void*> arguments;
    for (int32_t operand : call.operands) arguments.push_back(operands[operand]);
    const int64_t step = piece > 0 ? piece : call.extent;
    for (int64_t begin = 0; begin < call.extent; begin += step)
      kernel(&context, arguments.data(), begin, std::min(begin + step, call.extent));
  }
}

void runReference(const Segment& segment, const Memory& memory,
                  const program::KernelContext& context) {
  const std::vector<void*> operands = memory.pointers();
  for (const program::SegmentOp& op : segment.ops) runReferenceCall(op, segment, operands, context);
}

program::KernelContext testContext() {
  program::KernelContext context;
  context.firstSample = 6;
  context.tpIndex = 1;
  for (uint32_t i = 0; i < 8; ++i)
    context.keys[i] = makeRngKey(1234, 5, 3, static_cast<RngStream>(i));
  return context;
}

int32_t SegmentBuilder::operand(DType dtype, std::vector<int64_t> dims, bool temporary) {
  segment.operands.push_back({dtype, std::move(dims)});
  segment.temporary.push_back(temporary);
  return static_cast<int32_t>(segment.operands.size()) - 1;
}

void SegmentBuilder::op(OpKind kind, std::vector<int32_t> inputs, std::vector<int32_t> outputs,
                        OpAttributes attributes) {
  segment.ops.push_back({kind, attributes, std::move(inputs), std::move(outputs)});
}

void fillInputs(const Segment& segment, Memory& memory) {
  std::mt19937 random(7);
  std::vector<bool> done(segment.operands.size(), false);
  const auto fill = [&](int32_t operand, bool positive) {
    if (done[operand]) return;
    done[operand] = true;
    std::uniform_real_distribution<double> values(positive ? 0.5 : -2, 2);
    for (int64_t i = 0; i < segment.operands[operand].elements(); ++i)
      memory.set(operand, i, values(random));
  };
  for (const program::SegmentOp& op : segment.ops) {
    const bool isNormGrad = op.kind == OpKind::kLayerNormGrad || op.kind == OpKind::kRmsNormGrad;
    for (size_t i = 0; i < op.inputs.size(); ++i)
      fill(op.inputs[i], isNormGrad && i + 2 == op.inputs.size());  // rstd
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (graph::accumulates(op.kind, static_cast<int>(i))) fill(op.outputs[i], false);
      done[op.outputs[i]] = true;
    }
  }
}

double toleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 1e-14;
    case DType::kF32:
      return 2e-6;
    case DType::kF16:
      return 1.0 / 1024;
    default:
      return 1.0 / 128;  // One unit in the last place, where a rounding falls the other way.
  }
}

namespace {

void expectClose(const Segment& segment, int32_t operand, const Memory& actual,
                 const Memory& expected) {
  const OperandType& type = segment.operands[operand];
  double scale = 0;
  for (int64_t i = 0; i < type.elements(); ++i)
    scale = std::max(scale, std::abs(expected.at(operand, i)));
  const double tolerance = toleranceOf(segment.operands[segment.ops[0].inputs[0]].dtype);
  for (int64_t i = 0; i < type.elements(); ++i) {
    const double a = actual.at(operand, i), e = expected.at(operand, i);
    // Relative to the value, but not to one that is small beside the others: it was cancelled.
    ASSERT_LE(std::abs(a - e), tolerance * std::max(std::abs(e), 0.1 * scale))
        << "operand " << operand << ", element " << i << ": " << a << " for " << e;
  }
}

std::vector<int32_t> lasting(const Segment& segment) {
  std::vector<int32_t> operands;
  for (size_t i = 0; i < segment.operands.size(); ++i)
    if (!segment.temporary[i]) operands.push_back(static_cast<int32_t>(i));
  return operands;
}

void expectSameBytes(const Segment& segment, const Memory& a, const Memory& b, const char* what) {
  for (int32_t operand : lasting(segment))
    ASSERT_TRUE(a.bytes(operand) == b.bytes(operand)) << what << ": operand " << operand;
}

}  // namespace

// Sanitizers cannot follow fibers, and generated code is not instrumented.
static void expectSameInWarps(const Segment& segment, const std::vector<int32_t>& sharedWith,
                              const LoadedKernels& kernels) {
  if (TRIREME_SANITIZED) return;
  const WarpKernels warps(segment);
  for (const auto& sharing : {std::vector<int32_t>(), sharedWith}) {
    Memory expected(segment, sharing), actual(segment, sharing);
    fillInputs(segment, expected);
    fillInputs(segment, actual);
    kernels.run(0, segment, expected, testContext());
    warps.run(kernels.compiled().segments[0], segment, actual, testContext());
    expectSameBytes(segment, expected, actual, "in warps");
    EXPECT_TRUE(actual.guardsAreIntact());
  }
}

void expectMatchesReference(const Segment& segment, const std::vector<int32_t>& sharedWith) {
  auto compiled = compileSegments({segment}, {});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  auto unfused = compileSegments({segment}, {.fuse = false});
  ASSERT_TRUE(unfused.has_value()) << unfused.error().message();
  const LoadedKernels fusedKernels(*compiled), unfusedKernels(*unfused);
  const program::KernelContext context = testContext();

  Memory whole(segment), pieces(segment), apart(segment), expected(segment);
  for (Memory* memory : {&whole, &pieces, &apart, &expected}) fillInputs(segment, *memory);
  runReference(segment, expected, context);
  fusedKernels.run(0, segment, whole, context);
  for (int32_t operand : lasting(segment)) expectClose(segment, operand, whole, expected);
  fusedKernels.run(0, segment, pieces, context, 1);
  expectSameBytes(segment, whole, pieces, "in pieces");
  unfusedKernels.run(0, segment, apart, context);
  expectSameBytes(segment, whole, apart, "unfused");
  for (const Memory* memory : {&whole, &pieces, &apart}) EXPECT_TRUE(memory->guardsAreIntact());
  expectSameInWarps(segment, sharedWith, fusedKernels);
  if (sharedWith.empty()) return;

  Memory shared(segment, sharedWith);
  fillInputs(segment, shared);
  fusedKernels.run(0, segment, shared, context);
  for (int32_t operand : lasting(segment)) {
    bool overwritten = false;
    for (size_t i = 0; i < sharedWith.size(); ++i)
      overwritten |= sharedWith[i] == operand && static_cast<int32_t>(i) != operand;
    if (overwritten) continue;
    ASSERT_TRUE(whole.bytes(operand) == shared.bytes(operand)) << "in place: operand " << operand;
  }
}

}  // namespace trireme::codegen
