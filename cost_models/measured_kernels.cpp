#include "cost_models/measured_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "ir/program/workspace.h"

namespace trireme::cost {
namespace {

using program::OperandType;
using program::OpKind;
using program::SegmentOp;
using spec::KernelUnit;
using Operands = std::vector<OperandType>;

constexpr size_t kUnits = spec::kNumKernelUnits;

double& at(KernelCounts& counts, KernelUnit unit) { return counts[static_cast<size_t>(unit)]; }

const OperandType& input(const SegmentOp& op, const Operands& operands, size_t i) {
  return operands[static_cast<size_t>(op.inputs[i])];
}
const OperandType& output(const SegmentOp& op, const Operands& operands, size_t i) {
  return operands[static_cast<size_t>(op.outputs[i])];
}
double elementsOf(const OperandType& type) { return static_cast<double>(type.elements()); }

// Of x[s,b,...].
double rowsOf(const OperandType& type) {
  return type.dims.size() < 2 ? 1 : static_cast<double>(type.dims[0] * type.dims[1]);
}

// `activation` [t, a] and the other factor or result of a rows.
KernelCounts productCounts(const OperandType& in, const OperandType& out) {
  const double tokens = rowsOf(in);
  const double inputs = elementsOf(in) / tokens, outputs = elementsOf(out) / tokens;
  KernelCounts counts{};
  at(counts, KernelUnit::kProduct) = tokens * inputs * outputs;
  at(counts, KernelUnit::kInput) = tokens * inputs;
  at(counts, KernelUnit::kOutput) = tokens * outputs;
  at(counts, KernelUnit::kWeight) = inputs * outputs;
  return counts;
}

// Elements of an s x s matrix in blocks of r x r that are not wholly above the diagonal.
double visitedScores(int64_t sequence) {
  constexpr int64_t kRows = program::AttentionBlocking::kRows;
  double visited = 0;
  for (int64_t first = 0; first < sequence; first += kRows) {
    const int64_t end = std::min(sequence, first + kRows);
    visited += static_cast<double>((end - first) * end);
  }
  return visited;
}

KernelCounts attentionCounts(const SegmentOp& op, const Operands& operands) {
  const bool forward = op.kind == OpKind::kAttention;
  const OperandType& lse = forward ? output(op, operands, 1) : input(op, operands, 2);
  const double scores = static_cast<double>(lse.dims[0] * lse.dims[1]) * visitedScores(lse.dims[2]);
  KernelCounts counts{};
  at(counts, KernelUnit::kElement) = elementsOf(input(op, operands, 0));
  at(counts, KernelUnit::kScore) = scores;
  at(counts, KernelUnit::kDroppedScore) = op.attributes.probability > 0 ? scores : 0;
  at(counts, KernelUnit::kProduct) =
      scores * static_cast<double>(op.attributes.headSize) * (forward ? 2 : 5);
  return counts;
}

KernelCounts otherCounts(const SegmentOp& op, const Operands& operands, bool onHost) {
  constexpr double kNearBytes = 2 << 20;
  KernelCounts counts{};
  double largest = 0, far = 0;
  const auto take = [&](const OperandType& type) {
    const double elements = elementsOf(type);
    if (elements <= largest) return;
    largest = elements;
    far = std::max(0.0, elements - kNearBytes / static_cast<double>(byteSize(type.dtype)));
  };
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (!(op.kind == OpKind::kEmbedding && i == 1))  // the table, of which a few rows are read
      take(input(op, operands, i));
  for (size_t i = 0; i < op.outputs.size(); ++i)
    if (op.kind != OpKind::kEmbeddingGrad) take(output(op, operands, i));  // the same table
  at(counts, KernelUnit::kElement) = largest;
  at(counts, KernelUnit::kFarElement) = onHost ? far : 0;
  at(counts, KernelUnit::kRow) = rowsOf(input(op, operands, 0));
  return counts;
}

// The least squares of the times relative to the measured ones, over the units in `use`; nothing
// if the equations have no solution, or one below zero.
std::optional<std::vector<double>> solve(const std::vector<std::vector<double>>& rows,
                                         const std::vector<size_t>& use) {
  const size_t n = use.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0));
  for (const std::vector<double>& row : rows)
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) a[i][j] += row[use[i]] * row[use[j]];
      a[i][n] += row[use[i]];
    }
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r)
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    if (!(std::abs(a[pivot][i]) > 1e-12)) return std::nullopt;
    std::swap(a[i], a[pivot]);
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (size_t c = i; c <= n; ++c) a[r][c] -= factor * a[i][c];
    }
  }
  std::vector<double> solution(n);
  for (size_t i = 0; i < n; ++i) {
    solution[i] = a[i][n] / a[i][i];
    if (!(solution[i] >= 0) || !std::isfinite(solution[i])) return std::nullopt;
  }
  return solution;
}

double squares(const std::vector<std::vector<double>>& rows, const std::vector<size_t>& use,
               const std::vector<double>& solution) {
  double sum = 0;
  for (const std::vector<double>& row : rows) {
    double fitted = 0;
    for (size_t i = 0; i < use.size(); ++i) fitted += row[use[i]] * solution[i];
    sum += (fitted - 1) * (fitted - 1);
  }
  return sum;
}

Seconds rounded(double seconds) {
  const std::string text = fmt::format("{:.3e}", seconds);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return Seconds(value);
}

// Columns are scaled to a mean of 1, so that the equations are of numbers of one size.
Result<spec::KernelTiming> fitOne(const std::vector<const TimedKernel*>& timed) {
  std::vector<size_t> units;
  std::array<double, kUnits> scale{};
  for (size_t u = 0; u < kUnits; ++u) {
    for (const TimedKernel* kernel : timed) scale[u] += kernel->counts[u] / kernel->time.count();
    scale[u] /= static_cast<double>(timed.size());
    if (scale[u] > 0) units.push_back(u);
  }
  if (timed.size() < units.size())
    return Error(invalidArgument(fmt::format("kernel {}: {} times for {} unknowns",
                                             timed[0]->kernel, timed.size(), units.size())));
  std::vector<std::vector<double>> rows;
  for (const TimedKernel* kernel : timed) {
    std::vector<double>& row = rows.emplace_back(kUnits, 0.0);
    for (size_t u : units) row[u] = kernel->counts[u] / kernel->time.count() / scale[u];
  }
  spec::KernelTiming best{timed[0]->kernel, timed[0]->dtype, {}, ""};
  double least = -1;
  for (size_t subset = 1; subset < (size_t{1} << units.size()); ++subset) {
    std::vector<size_t> use;
    for (size_t i = 0; i < units.size(); ++i)
      if (subset >> i & 1) use.push_back(units[i]);
    const std::optional<std::vector<double>> solution = solve(rows, use);
    if (!solution) continue;
    const double sum = squares(rows, use, *solution);
    if (least >= 0 && sum >= least) continue;
    least = sum;
    best.per = {};
    for (size_t i = 0; i < use.size(); ++i)
      best.per[use[i]] = rounded((*solution)[i] / scale[use[i]]);
  }
  return best;
}

}  // namespace

KernelCounts countsOf(const SegmentOp& op, const Operands& operands, spec::DeviceKind device) {
  KernelCounts counts{};
  switch (op.kind) {
    case OpKind::kMatmul:
      counts = productCounts(input(op, operands, 0), output(op, operands, 0));
      break;
    case OpKind::kMatmulGradInput:
      counts = productCounts(output(op, operands, 0), input(op, operands, 0));
      break;
    case OpKind::kMatmulGradWeight:
      counts = productCounts(input(op, operands, 1), input(op, operands, 0));
      break;
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
      counts = attentionCounts(op, operands);
      break;
    default:
      counts = otherCounts(op, operands, device == spec::DeviceKind::kHost);
  }
  at(counts, KernelUnit::kCall) = 1;
  return counts;
}

KernelCounts countsOf(double elements) {
  KernelCounts counts{};
  at(counts, KernelUnit::kElement) = elements;
  return counts;
}

DType kernelType(const SegmentOp& op, const Operands& operands) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (const DType type = input(op, operands, i).dtype; type != DType::kI32) return type;
  return DType::kI32;
}

std::string_view kernelName(const SegmentOp& op, spec::DeviceKind device) {
  if (!op.attributes.tf32 || device != spec::DeviceKind::kCuda) return program::opName(op.kind);
  switch (op.kind) {
    case OpKind::kMatmul:
      return "matmul_tf32";
    case OpKind::kMatmulGradInput:
      return "matmul_grad_input_tf32";
    case OpKind::kMatmulGradWeight:
      return "matmul_grad_weight_tf32";
    default:
      return program::opName(op.kind);
  }
}

Seconds timeOf(const spec::KernelTiming& timing, const KernelCounts& counts) {
  Seconds total;
  for (size_t u = 0; u < kUnits; ++u) total += timing.per[u] * counts[u];
  return total;
}

Result<KernelFit> fitKernels(const std::vector<TimedKernel>& timed) {
  KernelFit fit;
  for (const TimedKernel& first : timed) {
    if (!(first.time.count() > 0))
      return Error(invalidArgument(
          fmt::format("kernel {}: a time of {} s", first.kernel, first.time.count())));
    const auto isKnown = [&](const spec::KernelTiming& known) {
      return known.kernel == first.kernel && known.dtype == first.dtype;
    };
    if (std::any_of(fit.kernels.begin(), fit.kernels.end(), isKnown)) continue;
    std::vector<const TimedKernel*> same;
    for (const TimedKernel& kernel : timed)
      if (kernel.kernel == first.kernel && kernel.dtype == first.dtype) same.push_back(&kernel);
    TRIREME_ASSIGN_OR_RETURN(const spec::KernelTiming timing, fitOne(same));
    double error = 0;
    std::vector<FittedTime>& times = fit.times.emplace_back();
    for (const TimedKernel* kernel : same) {
      times.push_back({kernel->time, timeOf(timing, kernel->counts), kernel->counts});
      error += std::abs(times.back().fitted / times.back().measured - 1);
    }
    fit.kernels.push_back(timing);
    fit.meanErrors.push_back(error / static_cast<double>(same.size()));
    fit.numTimed.push_back(static_cast<int>(same.size()));
  }
  return fit;
}

}  // namespace trireme::cost
