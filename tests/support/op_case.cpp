#include "tests/support/op_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "ir/program/workspace.h"
#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime::testing {

uint64_t seedOfDraws() {
  const char* text = std::getenv("TRIREME_SEED");
  return text == nullptr ? 42 : std::strtoull(text, nullptr, 10);
}

OpCase::OpCase(program::OpKind kind, program::OpAttributes attributes) {
  op_.kind = kind;
  op_.attributes = attributes;
  for (uint32_t i = 0; i < 8; ++i) context_.keys[i] = makeRngKey(7, 3, 1, RngStream(i));
}

int OpCase::add(DType type, std::vector<int64_t> dims) {
  types_.push_back({type, std::move(dims)});
  data_.emplace_back(static_cast<size_t>(types_.back().bytes()) / sizeof(std::max_align_t) + 1);
  return static_cast<int>(types_.size()) - 1;
}

Tensor OpCase::tensor(int operand) const {
  return {const_cast<std::max_align_t*>(data_[operand].data()), &types_[operand]};
}

int OpCase::input(DType type, std::vector<int64_t> dims) {
  const int operand = add(type, std::move(dims));
  op_.inputs.push_back(operand);
  std::normal_distribution<double> normal;
  const Tensor t = tensor(operand);
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, normal(random_));
  return operand;
}

int OpCase::input(DType type, std::vector<int64_t> dims, std::span<const double> values) {
  const int operand = add(type, std::move(dims));
  op_.inputs.push_back(operand);
  setValues(operand, values);
  return operand;
}

int OpCase::ids(std::vector<int64_t> dims, int64_t limit) {
  const int operand = add(DType::kI32, std::move(dims));
  op_.inputs.push_back(operand);
  std::uniform_int_distribution<int32_t> uniform(0, static_cast<int32_t>(limit) - 1);
  const Tensor t = tensor(operand);
  for (int64_t i = 0; i < t.elements(); ++i) t.as<int32_t>()[i] = uniform(random_);
  return operand;
}

int OpCase::output(DType type, std::vector<int64_t> dims, bool accumulates) {
  const int operand = add(type, std::move(dims));
  op_.outputs.push_back(operand);
  std::normal_distribution<double> normal;
  const Tensor t = tensor(operand);
  for (int64_t i = 0; i < t.elements(); ++i)
    t.set(i, accumulates ? normal(random_) : std::numeric_limits<double>::quiet_NaN());
  return operand;
}

void OpCase::outputOver(int input) { op_.outputs.push_back(input); }

std::vector<double> OpCase::values(int operand) const {
  std::vector<double> values(static_cast<size_t>(types_[operand].elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = tensor(operand).at(static_cast<int64_t>(i));
  return values;
}

void OpCase::setValues(int operand, std::span<const double> values) {
  ASSERT_EQ(static_cast<int64_t>(values.size()), types_[operand].elements());
  for (size_t i = 0; i < values.size(); ++i)
    tensor(operand).set(static_cast<int64_t>(i), values[i]);
}

double& OpCase::scalar(int operand, int64_t i) { return tensor(operand).as<double>()[i]; }

KernelCallArgs OpCase::args(std::vector<void*>& addresses) {
  for (auto& bytes : data_) addresses.push_back(bytes.data());
  return {&op_, types_.data(), addresses.data(), &context_, nullptr, nullptr, nullptr, overwrite_};
}

Status OpCase::runFast(int numThreads) {
  std::vector<void*> addresses;
  KernelCallArgs call = args(addresses);
  ThreadPool pool(numThreads);
  const size_t bytes = static_cast<size_t>(program::kernelWorkspaceBytes(op_, types_));
  constexpr size_t kOffset = 16, kGuard = 256;  // an arena need not align it better
  std::vector<unsigned char> workspace(bytes + kOffset + kGuard, 0xFF);
  call.workspace = workspace.data() + kOffset;
  call.pool = &pool;
  const Status status = runLibraryOp(call);
  for (size_t i = 0; i < kGuard; ++i)
    EXPECT_EQ(workspace[bytes + kOffset + i], 0xFF) << "the workspace is too small";
  return status;
}

Status OpCase::runReference() {
  std::vector<void*> addresses;
  const KernelCallArgs call = args(addresses);
  return runReferenceOp(call);
}

Status OpCase::runOn(const Run& run) {
  std::vector<void*> addresses;
  args(addresses);
  return run(op_, types_, context_, addresses);
}

void expectFastMatchesReference(const OpCase& test, std::span<const int> outputs,
                                double tolerance) {
  OpCase slow = test, fast = test, threaded = test;
  ASSERT_EQ(slow.runReference().message(), "");
  ASSERT_EQ(fast.runFast(1).message(), "");
  ASSERT_EQ(threaded.runFast(3).message(), "");
  for (int output : outputs) {
    const std::vector<double> expected = slow.values(output), actual = fast.values(output);
    EXPECT_EQ(actual, threaded.values(output)) << "depends on the number of threads";
    double largest = 0;
    for (double v : expected) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < expected.size(); ++i) {
      if (expected[i] == actual[i]) continue;
      ASSERT_NEAR(expected[i], actual[i], tolerance * largest)
          << "operand " << output << "[" << i << "]";
    }
  }
}

DType stateOf(DType type) { return type == DType::kF64 ? DType::kF64 : DType::kF32; }

double roundingOf(DType type) {
  switch (type) {
    case DType::kF64:
      return 1e-13;
    case DType::kF32:
      return 3e-6;
    case DType::kF16:
      return 2e-3;
    default:
      return 1e-2;
  }
}

}  // namespace trireme::runtime::testing
