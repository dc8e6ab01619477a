#include "ir/expand/segments.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/program/workspace.h"

namespace trireme::expand {
namespace {

bool usedOutside(const LoweredPass& pass, ValueId value, size_t begin, size_t end) {
  for (size_t i = 0; i < pass.items.size(); ++i) {
    if (i >= begin && i < end) continue;
    const Item& item = pass.items[i];
    if (std::count(item.inputs.begin(), item.inputs.end(), value) > 0) return true;
    if (std::count(item.outputs.begin(), item.outputs.end(), value) > 0) return true;
  }
  return false;
}

}  // namespace

CodeItem SegmentTable::makeSegment(const LoweredPass& pass, size_t begin, size_t end,
                                   const std::string& name) {
  CodeItem code;
  program::Segment segment;
  segment.name = name;
  const auto operandOf = [&](ValueId value) {
    const auto found = std::find(code.operands.begin(), code.operands.end(), value);
    if (found != code.operands.end()) return static_cast<int32_t>(found - code.operands.begin());
    const Value& v = pass.values[static_cast<size_t>(value)];
    code.operands.push_back(value);
    segment.operands.push_back(v.type);
    segment.temporary.push_back(v.storage == Storage::kTemporary &&
                                !usedOutside(pass, value, begin, end));
    return static_cast<int32_t>(code.operands.size()) - 1;
  };
  for (size_t i = begin; i < end; ++i) {
    const Item& item = pass.items[i];
    program::SegmentOp op;
    op.kind = item.kind;
    op.attributes = item.attributes;
    for (ValueId v : item.inputs) op.inputs.push_back(operandOf(v));
    for (ValueId v : item.outputs) op.outputs.push_back(operandOf(v));
    segment.ops.push_back(std::move(op));
  }
  for (const program::SegmentOp& op : segment.ops)
    workspaceBytes_ =
        std::max(workspaceBytes_, program::kernelWorkspaceBytes(op, segment.operands));
  const auto first = pass.items.begin() + static_cast<std::ptrdiff_t>(begin);
  recomputedOps_.push_back(
      static_cast<int32_t>(std::count_if(first, first + static_cast<std::ptrdiff_t>(end - begin),
                                         [](const Item& item) { return item.isRecomputed; })));
  code.segment = static_cast<int32_t>(segments_.size());
  segments_.push_back(std::move(segment));
  return code;
}

std::vector<CodeItem> SegmentTable::cut(const LoweredPass& pass, const std::string& name) {
  std::vector<CodeItem> code;
  int number = 0;
  for (size_t i = 0; i < pass.items.size();) {
    if (pass.items[i].isCollective) {
      const Item& item = pass.items[i++];
      CodeItem c;
      c.collective = item.collective;
      c.reduce = item.reduce;
      c.overlap = item.overlap;
      c.operands = item.inputs;
      if (item.collective != program::InstructionKind::kAllReduce)
        c.operands.push_back(item.outputs[0]);
      code.push_back(std::move(c));
      continue;
    }
    size_t end = i;
    while (end < pass.items.size() && !pass.items[end].isCollective) ++end;
    code.push_back(makeSegment(pass, i, end, fmt::format("{}.{}", name, number++)));
    i = end;
  }
  return code;
}

}  // namespace trireme::expand
