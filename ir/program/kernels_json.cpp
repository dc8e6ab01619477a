#include "ir/program/kernels_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ir/program/walk.h"

namespace trireme::program {
namespace {

using nlohmann::json;

json toJson(const RopeScaling& s) {
  return {{"type", ropeScalingName(s.kind)},
          {"factor", s.factor},
          {"lowFreqFactor", s.lowFreqFactor},
          {"highFreqFactor", s.highFreqFactor},
          {"originalSequence", s.originalSequence}};
}

json toJson(const OpAttributes& a) {
  return {{"epsilon", a.epsilon},
          {"probability", a.probability},
          {"stream", static_cast<uint32_t>(a.stream)},
          {"headSize", a.headSize},
          {"headsPerGroup", a.headsPerGroup},
          {"ropeTheta", a.ropeTheta},
          {"ropeScaling", toJson(a.ropeScaling)},
          {"logicalVocab", a.logicalVocab},
          {"scale", a.scale},
          {"sequenceSharded", a.sequenceSharded},
          {"widthSharded", a.widthSharded},
          {"tf32", a.tf32}};
}

json toJson(const KernelCall& call) {
  if (call.kind == KernelCallKind::kGenerated)
    return {{"symbol", call.symbol},
            {"operands", call.operands},
            {"extent", call.extent},
            {"grain", call.grain},
            {"warps", call.warps}};
  return {{"op", opName(call.op.kind)},
          {"attributes", toJson(call.op.attributes)},
          {"inputs", call.op.inputs},
          {"outputs", call.op.outputs}};
}

// Reads fields of one call; the first error sticks.
class CallReader {
 public:
  CallReader(const json& object, const Segment& segment) : object_(object), segment_(segment) {}

  Result<KernelCall> read() {
    KernelCall call;
    if (!object_.is_object()) fail("not an object");
    if (object_.is_object() && object_.contains("symbol")) {
      call.kind = KernelCallKind::kGenerated;
      call.symbol = text(object_, "symbol");
      call.operands = operands("operands");
      call.extent = integer(object_, "extent", 0, INT64_MAX);
      call.grain = integer(object_, "grain", 1, INT64_MAX);
      // Bundles of older versions have none.
      if (object_.contains("warps"))
        call.warps = static_cast<int32_t>(integer(object_, "warps", 1, kMaxWarps));
    } else if (error_.empty()) {
      readOp(call.op);
    }
    if (!error_.empty()) return Error(invalidArgument(error_));
    return call;
  }

 private:
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  void readOp(SegmentOp& op) {
    const std::string name = text(object_, "op");
    const auto kind = parseOpKind(name);
    if (!kind) return fail(fmt::format("unknown op '{}'", name));
    op.kind = *kind;
    op.inputs = operands("inputs");
    op.outputs = operands("outputs");
    const Arity arity = arityOf(*kind);
    if (op.inputs.size() != static_cast<size_t>(arity.inputs) ||
        op.outputs.size() != static_cast<size_t>(arity.outputs))
      return fail(fmt::format("wrong number of operands of {}", name));
    const json empty = json::object();
    const json& a = object_.contains("attributes") ? object_["attributes"] : empty;
    if (!a.is_object()) return fail("attributes: not an object");
    // Bundles of older versions have neither ropeScaling nor tf32.
    OpAttributes& out = op.attributes;
    out.epsilon = number(a, "epsilon");
    out.probability = number(a, "probability");
    out.stream = static_cast<RngStream>(
        integer(a, "stream", 1, static_cast<int64_t>(RngStream::kDataShuffle)));
    out.headSize = integer(a, "headSize", 0, INT64_MAX);
    out.headsPerGroup = integer(a, "headsPerGroup", 0, INT64_MAX);
    out.ropeTheta = number(a, "ropeTheta");
    if (a.contains("ropeScaling")) readRopeScaling(a["ropeScaling"], out.ropeScaling);
    out.logicalVocab = integer(a, "logicalVocab", 0, INT64_MAX);
    out.scale = number(a, "scale");
    out.sequenceSharded = flag(a, "sequenceSharded");
    out.widthSharded = flag(a, "widthSharded");
    if (a.contains("tf32")) out.tf32 = flag(a, "tf32");
  }

  void readRopeScaling(const json& s, RopeScaling& out) {
    if (!s.is_object()) return fail("ropeScaling: not an object");
    const std::string type = text(s, "type");
    const auto kind = parseRopeScalingKind(type);
    if (!kind) return fail(fmt::format("unknown type '{}' of ropeScaling", type));
    out.kind = *kind;
    out.factor = number(s, "factor");
    out.lowFreqFactor = number(s, "lowFreqFactor");
    out.highFreqFactor = number(s, "highFreqFactor");
    out.originalSequence = integer(s, "originalSequence", 0, INT64_MAX);
  }

  const json* find(const json& object, const char* key) {
    const auto it = object.find(key);
    if (it != object.end()) return &*it;
    fail(fmt::format("{} is missing", key));
    return nullptr;
  }
  std::string text(const json& object, const char* key) {
    const json* value = find(object, key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    fail(fmt::format("{} is not a string", key));
    return {};
  }
  double number(const json& object, const char* key) {
    const json* value = find(object, key);
    if (value != nullptr && value->is_number()) return value->get<double>();
    fail(fmt::format("{} is not a number", key));
    return 0;
  }
  bool flag(const json& object, const char* key) {
    const json* value = find(object, key);
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    fail(fmt::format("{} is not true or false", key));
    return false;
  }
  int64_t integer(const json& value, int64_t least, int64_t most, const char* key) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    const int64_t number = fits ? value.get<int64_t>() : 0;
    if (fits && number >= least && number <= most) return number;
    fail(fmt::format("{} is not an integer from {} to {}", key, least, most));
    return least;
  }
  int64_t integer(const json& object, const char* key, int64_t least, int64_t most) {
    const json* value = find(object, key);
    return value == nullptr ? least : integer(*value, least, most, key);
  }
  std::vector<int32_t> operands(const char* key) {
    std::vector<int32_t> list;
    const json* value = find(object_, key);
    if (value == nullptr || !value->is_array()) {
      fail(fmt::format("{} is not a list", key));
      return list;
    }
    const auto last = static_cast<int64_t>(segment_.operands.size()) - 1;
    for (const json& item : *value)
      list.push_back(static_cast<int32_t>(integer(item, 0, last, key)));
    return list;
  }

  const json& object_;
  const Segment& segment_;
  std::string error_;
};

}  // namespace

std::string printKernels(const std::vector<CompiledSegment>& kernels) {
  json list = json::array();
  for (const CompiledSegment& segment : kernels) {
    json calls = json::array();
    for (const KernelCall& call : segment.calls) calls.push_back(toJson(call));
    list.push_back(std::move(calls));
  }
  return list.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<std::vector<CompiledSegment>> parseKernels(const std::string& text, const Program& program) {
  const json list = json::parse(text, nullptr, false);
  if (!list.is_array()) return Error(invalidArgument("not a list of segments"));
  if (list.size() != program.segments.size())
    return Error(invalidArgument(
        fmt::format("{} segments, the program has {}", list.size(), program.segments.size())));
  std::vector<CompiledSegment> kernels;
  for (size_t s = 0; s < list.size(); ++s) {
    const Segment& segment = program.segments[s];
    if (!list[s].is_array())
      return Error(invalidArgument(fmt::format("segment {}: not a list of calls", segment.name)));
    CompiledSegment& compiled = kernels.emplace_back();
    for (size_t c = 0; c < list[s].size(); ++c) {
      auto call = CallReader(list[s][c], segment).read();
      if (!call)
        return Error(call.error().withContext(fmt::format("segment {} call {}", segment.name, c)));
      compiled.calls.push_back(std::move(*call));
    }
  }
  return kernels;
}

}  // namespace trireme::program
