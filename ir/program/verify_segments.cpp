// What a segment reads and writes: weights of its layer (V1), memory shared by its operands (V7),
// terms of sums over tp (V10).
#include <fmt/format.h>

#include <algorithm>

#include "ir/program/verify_contents.h"
#include "ir/program/verify_internal.h"

namespace trireme::program::verify {

namespace {

// Which inputs are parameters.
bool isWeight(OpKind kind, size_t input) {
  switch (kind) {
    case OpKind::kEmbedding:
    case OpKind::kAddPosition:
    case OpKind::kRmsNorm:
    case OpKind::kMatmul:
    case OpKind::kBiasAdd:
    case OpKind::kLayerNormGrad:
    case OpKind::kRmsNormGrad:
    case OpKind::kMatmulGradInput:
      return input == 1;
    case OpKind::kLayerNorm:
      return input >= 1;
    default:
      return false;
  }
}

}  // namespace

// A segment sees weights and gradients one parameter at a time, of the layer that it computes.
Status RoleMemory::checkWeights(const Instruction& in, const Segment& segment) {
  std::vector<bool> weight(in.buffers.size());
  for (const SegmentOp& op : segment.ops)
    for (size_t i = 0; i < op.inputs.size(); ++i)
      if (isWeight(op.kind, i)) weight[at(op.inputs[i])] = true;
  for (size_t i = 0; i < in.buffers.size(); ++i) {
    const RegionOf* region = regionAt(span(in.buffers[i]));
    const std::string& name = role_.buffers[at(in.buffers[i])].name;
    if (weight[i] && (region == nullptr || region->region != Region::kParameter))
      return error("V1", fmt::format("{} is no parameter, which the segment takes", name));
    if (region == nullptr || region->region == Region::kLoss) continue;
    if (weight[i]) used_.assign(span(in.buffers[i]), true);
    int32_t layer = 0;
    const Parameter* p = parameterAt(in.buffers[i], region->region == Region::kGradient, &layer);
    if (p == nullptr)
      return error("V1", fmt::format("{} shows no parameter of {}", name, region->name));
    std::vector<int64_t> dims = p->paddedDims;
    if (p->tpDim >= 0) dims[at(p->tpDim)] /= program_.tp;
    if (dims != segment.operands[i].dims)
      return error("V1",
                   fmt::format("{} shows {} [{}], the segment takes [{}]", name, p->name,
                               fmt::join(dims, ","), fmt::join(segment.operands[i].dims, ",")));
    const int32_t chunk = task_ < 0 ? -1 : role_.tasks[at(task_)].chunk;
    if (p->numLayers > 0 && chunk >= 0 &&
        layer != role_.chunks[at(chunk)].firstLayer + place_.layer)
      return error(
          "V1", fmt::format("{} shows {} of layer {}, the segment computes layer {}", name, p->name,
                            layer, role_.chunks[at(chunk)].firstLayer + place_.layer));
  }
  return {};
}

Status RoleMemory::compute(const Instruction& in) {
  const Segment& segment = program_.segments[at(in.segment)];
  TRIREME_RETURN_IF_ERROR(checkWeights(in, segment));
  TRIREME_RETURN_IF_ERROR(checkSharing(in, segment));
  for (const SegmentOp& op : segment.ops) {
    for (int32_t i : op.inputs) {
      TRIREME_ASSIGN_OR_RETURN(const Content content, read(in.buffers[at(i)]));
      if (content.partial)
        return error("V10", fmt::format("{} reads {} before it is summed over tp", opName(op.kind),
                                        role_.buffers[at(in.buffers[at(i)])].name));
    }
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const int32_t index = in.buffers[at(op.outputs[o])];
      const bool accumulates = isAccumulated(op.kind, o);
      if (accumulates) {
        auto before = read(index);
        if (!before) return before.error();
      }
      // The other outputs are statistics, which a forward that is computed again does not need.
      Content content = o == 0 && !accumulates ? resultIn(index) : contentOf(index);
      content.partial = program_.tp > 1 && givesPartial(in, segment, op, o);
      TRIREME_RETURN_IF_ERROR(write(content, in, accumulates));
    }
  }
  return {};
}

// Operands of one segment may share memory if the first is dead when the second is written, or if
// an elementwise op writes the second over the first, byte for byte. The workspace belongs to
// nobody.
Status RoleMemory::checkSharing(const Instruction& in, const Segment& segment) {
  const auto n = static_cast<int32_t>(segment.operands.size());
  const auto name = [&](int32_t i) { return role_.buffers[at(in.buffers[at(i)])].name; };
  std::vector<Span> spans;
  for (int32_t buffer : in.buffers) spans.push_back(span(buffer));
  if (workspaceShared_) {
    const Span workspace = span(role_.workspace);
    for (int32_t i = 0; i < n; ++i)
      if (overlap(spans[at(i)], workspace))
        return error("V7", fmt::format("{} lies in the workspace", name(i)));
    Content garbage{DType::kI32, workspace, owner_};
    garbage.garbage = true;
    overlay_.assign(workspace, garbage);
  }
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = 0; j < n; ++j) {
      if (i == j || !overlap(spans[at(i)], spans[at(j)])) continue;
      if (!maySucceed(in, segment, i, j))
        return error("V7",
                     fmt::format("{} is overwritten with {} while it is needed", name(i), name(j)));
    }
  return {};
}

bool RoleMemory::maySucceed(const Instruction& in, const Segment& segment, int32_t first,
                            int32_t second) const {
  const auto uses = [](const std::vector<int32_t>& list, int32_t operand) {
    return std::find(list.begin(), list.end(), operand) != list.end();
  };
  const auto numOps = static_cast<int32_t>(segment.ops.size());
  int32_t write = numOps, lastUse = -1, firstUse = numOps;
  for (int32_t o = 0; o < numOps; ++o) {
    const SegmentOp& op = segment.ops[at(o)];
    if (uses(op.outputs, second)) write = std::min(write, o);
    if (!uses(op.inputs, first) && !uses(op.outputs, first)) continue;
    lastUse = o;
    firstUse = std::min(firstUse, o);
  }
  if (write == numOps) return true;  // Never written here.
  // The second is the earlier one of the two: the pair is judged the other way round.
  if (firstUse > write) return true;
  if (lastUse < write) return true;
  const SegmentOp& op = segment.ops[at(write)];
  return lastUse == write && mayWriteInPlace(op.kind) && !uses(op.outputs, first) &&
         span(in.buffers[at(first)]) == span(in.buffers[at(second)]) &&
         role_.buffers[at(in.buffers[at(first)])].dtype ==
             role_.buffers[at(in.buffers[at(second)])].dtype;
}

// The parameter that a buffer shows (or whose gradient), and of which logical layer; null if none.
const Parameter* RoleMemory::parameterAt(int32_t buffer, bool gradient, int32_t* layer) const {
  const Span bytes = span(buffer);
  for (const Parameter& p : role_.parameters) {
    const Bucket& bucket = role_.buckets[at(p.bucket)];
    const int32_t whole = gradient ? bucket.gradient : bucket.parameter;
    const int64_t width = byteSize(role_.buffers[at(whole)].dtype);
    if (p.localElements(program_.tp) * width != bytes.end - bytes.begin) continue;
    const int64_t distance = bytes.begin - span(whole).begin - p.offset * width;
    const int64_t stride = p.layerStride * width;
    const int64_t index = stride > 0 ? distance / stride : 0;
    if (distance != index * stride || index < 0 || index >= std::max(p.numLayers, 1)) continue;
    if (layer != nullptr) *layer = p.firstLayer + static_cast<int32_t>(index);
    return &p;
  }
  return nullptr;
}

// Whether the op contracts a dim that is split over tp: its output is this rank's term of a sum.
bool RoleMemory::givesPartial(const Instruction& in, const Segment& segment, const SegmentOp& op,
                              size_t output) const {
  if (isAccumulated(op.kind, output)) {
    // The gradient of a parameter that every rank holds, from tokens that are split.
    const Parameter* parameter = parameterAt(in.buffers[at(op.outputs[output])], true);
    return parameter != nullptr && parameter->tpDim < 0 &&
           segment.operands[at(op.inputs[0])].dims[0] < program_.training.sequenceLength;
  }
  const auto dims = [&](int32_t operand) { return segment.operands[at(operand)].dims.size(); };
  switch (op.kind) {
    case OpKind::kEmbedding:
    case OpKind::kLossMax:
    case OpKind::kLossTarget:
    case OpKind::kLossSumExp:
      return op.attributes.widthSharded;
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput: {
      const Parameter* weight = parameterAt(in.buffers[at(op.inputs[1])], false);
      if (weight == nullptr || weight->tpDim < 0 ||
          weight->paddedDims.size() != dims(op.inputs[1]) || dims(op.inputs[0]) < 2)
        return false;
      // The other operand is [s, b, contracted...].
      const auto contracted = static_cast<int32_t>(dims(op.inputs[0])) - 2;
      const auto rank = static_cast<int32_t>(dims(op.inputs[1]));
      return op.kind == OpKind::kMatmul ? weight->tpDim >= rank - contracted
                                        : weight->tpDim < contracted;
    }
    default:
      return false;
  }
}

}  // namespace trireme::program::verify
