// Which passes have to be executed to know all of them, and that no pass disturbs another: (V7).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/program/verify_contents.h"
#include "ir/program/verify_internal.h"
#include "ir/program/verify_layout.h"

namespace trireme::program::verify {
namespace {

// A forward task and its backward: one task or two.
struct Pass {
  int32_t chunk = 0, slot = 0;
  std::vector<int32_t> tasks;
};

// Bytes that one pass needs or writes.
struct Claim {
  Span bytes;
  int32_t pass = 0;
};

class SlotCheck {
 public:
  SlotCheck(const Context& context, int32_t role)
      : context_(context), index_(role), role_(context.program.roles[at(role)]) {}

  Status run() {
    findPasses();
    TRIREME_RETURN_IF_ERROR(checkRepetition());
    const auto& places = context_.roles[at(index_)].places;
    const Strides passes = stridesOf(false), step = stridesOf(true);
    std::map<std::pair<int32_t, int32_t>, bool> donePasses, doneStep;
    for (const auto& [tp, dp] : places) {
      bool newPasses =
          donePasses.emplace(std::pair(passes.tp ? tp : 0, passes.dp ? dp : 0), true).second;
      const bool newStep =
          doneStep.emplace(std::pair(step.tp ? tp : 0, step.dp ? dp : 0), true).second;
      newPasses |= newStep && reducesInPasses();  // which the step has to know
      if (newPasses || newStep) TRIREME_RETURN_IF_ERROR(checkPlace(tp, dp, newPasses, newStep));
    }
    return {};
  }

 private:
  struct Strides {
    bool tp = false, dp = false;
  };

  // On which indices the addresses of the step (or of the passes) depend.
  Strides stridesOf(bool step) const {
    Strides strides;
    for (const TaskRecord& task : tasksWithNewBody(role_))
      if ((task.direction == Direction::kStep) == step)
        for (const Instruction& in : role_.bodies[at(task.body)].instructions) {
          for (int32_t b : in.buffers) {
            strides.tp |= role_.buffers[at(b)].tpStride != 0;
            strides.dp |= role_.buffers[at(b)].dpStride != 0;
          }
          if (in.kind == InstructionKind::kSumSquares || in.kind == InstructionKind::kAdamW)
            strides.dp |= role_.buckets[at(in.bucket)].sharded;
        }
    return strides;
  }

  bool reducesInPasses() const {
    for (const TaskRecord& task : tasksWithNewBody(role_))
      if (task.direction == Direction::kBackward || task.direction == Direction::kWeights)
        for (const Instruction& in : role_.bodies[at(task.body)].instructions)
          if (isCollective(in.kind) && in.group != GroupKind::kTp) return true;
    return false;
  }

  void findPasses() {
    std::vector<std::vector<int32_t>> latest(role_.chunks.size());  // [chunk][slot]: of passes_
    for (int32_t t = 0; t < static_cast<int32_t>(role_.tasks.size()); ++t) {
      const TaskRecord& task = role_.tasks[at(t)];
      if (task.direction == Direction::kStep) continue;
      std::vector<int32_t>& slots = latest[at(task.chunk)];
      if (at(task.slot) >= slots.size()) slots.resize(at(task.slot) + 1, -1);
      int32_t& pass = slots[at(task.slot)];
      if (task.direction == Direction::kForward) {
        pass = static_cast<int32_t>(passes_.size());
        passes_.push_back({task.chunk, task.slot, {}});
      }
      passes_[at(pass)].tasks.push_back(t);
    }
  }

  // Does the segment accumulate into something that is not of a layer?
  bool addsToOnePlace(const Instruction& in) const {
    for (const SegmentOp& op : context_.program.segments[at(in.segment)].ops)
      for (size_t o = 0; o < op.outputs.size(); ++o)
        if (isAccumulated(op.kind, o) &&
            role_.buffers[at(in.buffers[at(op.outputs[o])])].layerStride == 0)
          return true;
    return false;
  }

  // (V8) within a task: the same segment on the same operands would count twice.
  Status checkRepetition() const {
    for (size_t b = 0; b < role_.bodies.size(); ++b) {
      const std::vector<Instruction>& list = role_.bodies[b].instructions;
      std::map<std::pair<int32_t, std::vector<int32_t>>, size_t> seen;
      size_t repeatEnd = 0;
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind == InstructionKind::kRepeat && list[i].count > 1)
          repeatEnd = i + 1 + at(list[i].length);
        if (list[i].kind != InstructionKind::kCompute) continue;
        if (i < repeatEnd && addsToOnePlace(list[i]))
          return violation(
              "V8", where(context_, index_, -1, static_cast<int32_t>(b), static_cast<int32_t>(i)),
              "adds to the same operand for every layer");
        const auto [it, fresh] = seen.emplace(std::pair(list[i].segment, list[i].buffers), i);
        if (!fresh)
          return violation(
              "V8", where(context_, index_, -1, static_cast<int32_t>(b), static_cast<int32_t>(i)),
              fmt::format("computes what instruction {} has computed", it->second));
      }
    }
    return {};
  }

  Status checkPlace(int32_t tp, int32_t dp, bool passes, bool step) {
    RoleMemory memory(context_, index_, tp, dp);
    TRIREME_RETURN_IF_ERROR(memory.prepare());
    if (passes) {
      layout_ = findSlotLayout(role_, {0, 0, tp, dp});
      const bool copies = layout_.copies;
      std::set<std::vector<int32_t>> done;
      for (std::vector<Claim>* claims : {&needs_, &writes_}) claims->clear();
      for (std::vector<TaskSpan>* spans : {&adds_, &reductions_}) spans->clear();
      for (size_t i = 0; i < passes_.size(); ++i) {
        const Pass& pass = passes_[i];
        std::vector<int32_t> key = {copies ? 0 : pass.slot};
        for (int32_t task : pass.tasks) key.push_back(role_.tasks[at(task)].body);
        if (!done.insert(std::move(key)).second) continue;
        TRIREME_RETURN_IF_ERROR(memory.pass(pass.tasks));
        const auto claim = [&](const std::vector<Span>& spans, std::vector<Claim>& claims) {
          for (Span span : spans) claims.push_back({span, static_cast<int32_t>(i)});
        };
        claim(memory.exposed(), needs_);
        claim(memory.written(), writes_);
        adds_.insert(adds_.end(), memory.added().begin(), memory.added().end());
        reductions_.insert(reductions_.end(), memory.reduced().begin(), memory.reduced().end());
      }
      TRIREME_RETURN_IF_ERROR(checkReductions());
      TRIREME_RETURN_IF_ERROR(memory.checkParameters());
      TRIREME_RETURN_IF_ERROR(copies ? checkPrivate() : checkConflicts());
    }
    return step ? memory.step() : Status();
  }

  // What a task needs from an earlier one of its pass lies in its slot.
  Status checkPrivate() const {
    for (const Claim& need : needs_) {
      const Pass& pass = passes_[at(need.pass)];
      if (!contains(layout_.regions[at(pass.chunk)], need.bytes)) return checkConflicts();
    }
    return {};
  }

  Status checkConflicts() const {
    for (const Claim& need : needs_)
      for (const Claim& write : writes_) {
        if (!overlap(need.bytes, write.bytes)) continue;
        const Pass& reader = passes_[at(need.pass)];
        const Pass& writer = passes_[at(write.pass)];
        TRIREME_RETURN_IF_ERROR(checkBetween(reader, writer, need.bytes));
      }
    return {};
  }

  // A gradient is reduced once, when nothing is added to it any more.
  Status checkReductions() const {
    for (const TaskSpan& reduction : reductions_) {
      const int32_t body = role_.tasks[at(reduction.task)].body;
      TRIREME_RETURN_IF_ERROR(
          checkNoneBehind(reduction.task, body, "reduces gradients that {} has reduced"));
      for (const TaskSpan& sum : adds_)
        if (const int32_t adder = role_.tasks[at(sum.task)].body;
            adder != body && overlap(sum.bytes, reduction.bytes))
          TRIREME_RETURN_IF_ERROR(
              checkNoneBehind(reduction.task, adder, "adds to gradients that {} has reduced"));
    }
    return {};
  }

  // Does no task of `body` come after the task that reduces?
  Status checkNoneBehind(int32_t reduces, int32_t body,
                         fmt::format_string<std::string> what) const {
    for (int32_t t = reduces + 1; t < static_cast<int32_t>(role_.tasks.size()); ++t)
      if (role_.tasks[at(t)].body == body)
        return violation("V9", where(context_, index_, t),
                         fmt::format(what, taskName(role_.tasks[at(reduces)])));
    return {};
  }

  // Does a task like those of `writer` run between the tasks of a pass like `reader`?
  Status checkBetween(const Pass& reader, const Pass& writer, Span bytes) const {
    for (const Pass& pass : passes_) {
      if (pass.chunk != reader.chunk || pass.slot != reader.slot) continue;
      const int32_t last = pass.tasks.back();
      for (int32_t t = pass.tasks.front() + 1; t < last; ++t) {
        const TaskRecord& task = role_.tasks[at(t)];
        const bool isOwn = task.chunk == pass.chunk && task.slot == pass.slot;  // its only tenant
        if (isOwn || task.chunk != writer.chunk || task.slot != writer.slot) continue;
        return violation("V7", where(context_, index_, t),
                         fmt::format("overwrites bytes {} to {}, which {} still needs", bytes.begin,
                                     bytes.end, taskName(role_.tasks[at(last)])));
      }
    }
    return {};
  }

  const Context& context_;
  int32_t index_;
  const Role& role_;
  SlotLayout layout_;
  std::vector<Pass> passes_;
  std::vector<Claim> needs_, writes_;
  std::vector<TaskSpan> adds_, reductions_;
};

}  // namespace

Status checkContents(const Context& context) {
  for (size_t r = 0; r < context.roles.size(); ++r)
    if (context.roles[r].first >= 0)
      TRIREME_RETURN_IF_ERROR(SlotCheck(context, static_cast<int32_t>(r)).run());
  return {};
}

}  // namespace trireme::program::verify
