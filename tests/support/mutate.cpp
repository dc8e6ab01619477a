#include "tests/support/mutate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trireme::testing {
namespace {

using namespace program;

constexpr std::array<std::string_view, kNumMutationKinds> kNames = {
    "drop instruction", "duplicate instruction", "swap instructions", "move across collective",
    "drop wait",        "drop signal",           "change event",      "change stream",
    "change peer",      "change virtual stage",  "change group",      "change segment",
    "change operand",   "change repeat",         "change bucket",     "grow buffer",
    "free early",       "move buffer",           "change stride",     "shrink arena",
    "drop task",        "duplicate task",        "swap tasks",        "change microbatch",
    "change slot",      "change chunk",          "change body",       "flip direction",
};

size_t indexOf(int64_t i) { return static_cast<size_t>(i); }

bool isTransfer(const Instruction& in) {
  return in.kind == InstructionKind::kSend || in.kind == InstructionKind::kRecv;
}
bool isSync(const Instruction& in) {
  return in.kind == InstructionKind::kAllReduce || in.kind == InstructionKind::kReduceScatter ||
         in.kind == InstructionKind::kAllGather;
}

// Changes one role.
class Mutator {
 public:
  Mutator(Program& program, Role& role, std::mt19937_64& rng)
      : program_(program), role_(role), rng_(rng) {
    body_ = &role_.bodies[role_.tasks[below(role_.tasks.size())].body];
  }

  // What was changed; empty: nothing.
  std::string apply(MutationKind kind) {
    switch (kind) {
      case MutationKind::kDropTask:
      case MutationKind::kDuplicateTask:
      case MutationKind::kSwapTasks:
      case MutationKind::kChangeMicrobatch:
      case MutationKind::kChangeSlot:
      case MutationKind::kChangeChunk:
      case MutationKind::kChangeBody:
      case MutationKind::kFlipDirection:
        return changeTask(kind);
      case MutationKind::kGrowBuffer:
      case MutationKind::kMoveBuffer:
      case MutationKind::kChangeStride:
      case MutationKind::kShrinkArena:
        return changeMemory(kind);
      case MutationKind::kFreeEarly:
        return freeEarly();
      case MutationKind::kDropInstruction:
      case MutationKind::kDuplicateInstruction:
      case MutationKind::kSwapInstructions:
      case MutationKind::kMoveInstruction:
        return changeOrder(kind);
      default:
        return changeField(kind);
    }
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(rng_() % std::max<size_t>(n, 1)); }
  int32_t other(int32_t value, int32_t n) {
    return n < 2 ? value : static_cast<int32_t>((value + 1 + below(indexOf(n - 1))) % indexOf(n));
  }

  std::vector<Instruction>& code() { return body_->instructions; }
  std::string in(size_t i) const {
    return fmt::format("{} {} {}", body_->name, i, instructionName(body_->instructions[i].kind));
  }

  // A random instruction of the body that passes; -1: none does.
  template <typename Filter>
  int64_t pick(Filter filter) {
    std::vector<size_t> fit;
    for (size_t i = 0; i < code().size(); ++i)
      if (filter(code()[i])) fit.push_back(i);
    return fit.empty() ? -1 : static_cast<int64_t>(fit[below(fit.size())]);
  }

  // Keeps the repeat around position `i` in step with an insertion or removal there.
  void resizeRepeat(size_t i, int32_t change) {
    for (size_t r = 0; r < i && r < code().size(); ++r)
      if (code()[r].kind == InstructionKind::kRepeat && i <= r + indexOf(code()[r].length))
        code()[r].length += change;
  }

  std::string changeOrder(MutationKind kind) {
    if (code().empty()) return "";
    const auto plain = [](const Instruction& i) { return i.kind != InstructionKind::kRepeat; };
    if (kind == MutationKind::kDropInstruction || kind == MutationKind::kDuplicateInstruction) {
      const int64_t i = pick(plain);
      if (i < 0) return "";
      const std::string name = in(indexOf(i));
      const bool drop = kind == MutationKind::kDropInstruction;
      resizeRepeat(indexOf(i), drop ? -1 : 1);
      if (drop) {
        code().erase(code().begin() + i);
        std::erase_if(code(), [](const Instruction& r) {
          return r.kind == InstructionKind::kRepeat && r.length == 0;
        });
      } else {
        code().insert(code().begin() + i, Instruction(code()[indexOf(i)]));
      }
      return fmt::format("{} {}", drop ? "drop" : "duplicate", name);
    }
    if (kind == MutationKind::kSwapInstructions) {
      if (code().size() < 2) return "";
      const size_t i = below(code().size() - 1);
      if (!plain(code()[i]) || !plain(code()[i + 1]) || code()[i] == code()[i + 1]) return "";
      if (code()[i].stream != code()[i + 1].stream) return "";  // The order is none.
      const std::string name = fmt::format("swap {} and {}", in(i), in(i + 1));
      std::swap(code()[i], code()[i + 1]);
      return name;
    }
    const int64_t collective = pick(isSync);
    const int64_t first = rng_() % 2 == 0 ? collective : collective - 1;
    if (collective < 0 || first < 0 || indexOf(first) + 1 == code().size()) return "";
    if (!plain(code()[indexOf(first)]) || !plain(code()[indexOf(first) + 1])) return "";
    if (code()[indexOf(first)] == code()[indexOf(first) + 1]) return "";
    std::swap(code()[indexOf(first)], code()[indexOf(first) + 1]);
    return fmt::format("move {} behind {}", in(indexOf(first) + 1), in(indexOf(first)));
  }

  std::string changeField(MutationKind kind) {
    using K = InstructionKind;
    const auto change = [&](int64_t i, auto&& edit, const char* what) -> std::string {
      if (i < 0) return "";
      const Instruction before = code()[indexOf(i)];
      edit(code()[indexOf(i)]);
      return code()[indexOf(i)] == before ? "" : fmt::format("{} of {}", what, in(indexOf(i)));
    };
    switch (kind) {
      case MutationKind::kDropWait: {
        const int64_t i = pick([](const Instruction& w) { return w.kind == K::kWait; });
        if (i < 0) return "";
        const std::string name = fmt::format("drop {}", in(indexOf(i)));
        resizeRepeat(indexOf(i), -1);
        code().erase(code().begin() + i);
        return name;
      }
      case MutationKind::kDropSignal:
        return change(
            pick([](const Instruction& s) { return s.kind != K::kWait && s.event.base >= 0; }),
            [](Instruction& s) { s.event = {}; }, "drop signal");
      case MutationKind::kChangeEvent:
        return change(
            pick([](const Instruction& s) { return s.event.base >= 0; }),
            [&](Instruction& s) { s.event.base = other(s.event.base, role_.numEvents); },
            "other event");
      case MutationKind::kChangeStream:
        return change(
            pick([](const Instruction& s) { return s.kind != K::kRepeat; }),
            [&](Instruction& s) {
              s.stream = static_cast<Stream>(other(static_cast<int32_t>(s.stream), kNumStreams));
            },
            "other stream");
      case MutationKind::kChangePeer:
        return change(
            pick(isTransfer),
            [&](Instruction& s) { s.peerStage = other(s.peerStage, program_.pp); }, "other peer");
      case MutationKind::kChangeVirtualStage:
        return change(
            pick(isTransfer),
            [&](Instruction& s) {
              s.virtualStage = other(s.virtualStage, program_.pp * program_.virtualStages);
            },
            "other virtual stage");
      case MutationKind::kChangeGroup:
        return change(
            pick(isSync),
            [&](Instruction& s) {
              s.group =
                  static_cast<GroupKind>(other(static_cast<int32_t>(s.group), kNumGroupKinds));
            },
            "other group");
      case MutationKind::kChangeSegment:
        return change(
            pick([](const Instruction& s) { return s.kind == K::kCompute; }),
            [&](Instruction& s) {
              s.segment = other(s.segment, static_cast<int32_t>(program_.segments.size()));
            },
            "other segment");
      case MutationKind::kChangeOperand:
        return change(
            pick([](const Instruction& s) { return !s.buffers.empty(); }),
            [&](Instruction& s) { changeOperand(s); }, "other operand");
      case MutationKind::kChangeRepeat:
        return change(
            pick([](const Instruction& s) { return s.kind == K::kRepeat; }),
            [&](Instruction& s) { ++(rng_() % 2 == 0 ? s.count : s.length); }, "other repeat");
      case MutationKind::kChangeBucket:
        return change(
            pick([](const Instruction& s) { return s.bucket >= 0; }),
            [&](Instruction& s) {
              s.bucket = other(s.bucket, static_cast<int32_t>(role_.buckets.size()));
            },
            "other bucket");
      default:
        return "";
    }
  }

  // Another buffer of the same type: one that the indices alone do not give away.
  void changeOperand(Instruction& instruction) {
    int32_t& operand = instruction.buffers[below(instruction.buffers.size())];
    std::vector<int32_t> same;
    const Buffer& old = role_.buffers[indexOf(operand)];
    for (size_t b = 0; b < role_.buffers.size(); ++b) {
      const Buffer& other = role_.buffers[b];
      if (other.dtype == old.dtype && other.elements == old.elements &&
          (other.offset != old.offset || other.layerStride != old.layerStride))
        same.push_back(static_cast<int32_t>(b));
    }
    if (!same.empty()) operand = same[below(same.size())];
  }

  std::string changeMemory(MutationKind kind) {
    if (kind == MutationKind::kShrinkArena) {
      role_.arenaBytes -= 64;
      return "shrink the arena by 64 bytes";
    }
    // A buffer that the program uses.
    const int64_t i = pick([](const Instruction& s) { return !s.buffers.empty(); });
    if (i < 0) return "";
    const std::vector<int32_t>& operands = code()[indexOf(i)].buffers;
    Buffer& buffer = role_.buffers[indexOf(operands[below(operands.size())])];
    const int64_t step = byteSize(buffer.dtype);
    switch (kind) {
      case MutationKind::kGrowBuffer:
        ++buffer.elements;
        break;
      case MutationKind::kMoveBuffer:
        buffer.offset += rng_() % 2 == 0 ? 64 : step;
        break;
      default: {
        int64_t* strides[] = {&buffer.layerStride, &buffer.slotStride, &buffer.tpStride,
                              &buffer.dpStride};
        *strides[below(4)] += step;
      }
    }
    return fmt::format("{} of {}",
                       kind == MutationKind::kGrowBuffer   ? "size"
                       : kind == MutationKind::kMoveBuffer ? "offset"
                                                           : "stride",
                       buffer.name);
  }

  // A buffer of an instruction gets the memory of one that is used before it and after it.
  std::string freeEarly() {
    const auto uses = [&](size_t i, int32_t b) {
      return std::count(code()[i].buffers.begin(), code()[i].buffers.end(), b) > 0;
    };
    const int64_t i = pick([](const Instruction& s) { return !s.buffers.empty(); });
    if (i < 0) return "";
    const std::vector<int32_t>& operands = code()[indexOf(i)].buffers;
    Buffer& taker = role_.buffers[indexOf(operands[below(operands.size())])];
    std::vector<const Buffer*> alive;
    for (size_t b = 0; b < role_.buffers.size(); ++b) {
      const Buffer& buffer = role_.buffers[b];
      bool before = false, after = false;
      for (size_t k = 0; k < code().size(); ++k)
        if (uses(k, static_cast<int32_t>(b))) (k < indexOf(i) ? before : after) = true;
      if (before && after && buffer.offset != taker.offset) alive.push_back(&buffer);
    }
    if (alive.empty()) return "";
    const Buffer& freed = *alive[below(alive.size())];
    taker.offset = freed.offset;
    taker.layerStride = freed.layerStride;
    taker.slotStride = freed.slotStride;
    taker.tpStride = freed.tpStride;
    taker.dpStride = freed.dpStride;
    return fmt::format("{} at {} gets the memory of {}", taker.name, in(indexOf(i)), freed.name);
  }

  std::string changeTask(MutationKind kind) {
    const size_t t = below(role_.tasks.size());
    TaskRecord& task = role_.tasks[t];
    const TaskRecord before = task;
    switch (kind) {
      case MutationKind::kDropTask:
        role_.tasks.erase(role_.tasks.begin() + static_cast<int64_t>(t));
        return fmt::format("drop task {}", t);
      case MutationKind::kDuplicateTask:
        role_.tasks.insert(role_.tasks.begin() + static_cast<int64_t>(t), TaskRecord(task));
        return fmt::format("duplicate task {}", t);
      case MutationKind::kSwapTasks: {
        if (t + 1 == role_.tasks.size()) return "";
        std::swap(task, role_.tasks[t + 1]);
        return fmt::format("swap tasks {} and {}", t, t + 1);
      }
      case MutationKind::kChangeMicrobatch:
        task.microbatch =
            other(task.microbatch, static_cast<int32_t>(program_.training.numMicrobatches));
        break;
      case MutationKind::kChangeSlot:
        if (task.chunk < 0) return "";
        task.slot = other(task.slot, role_.chunks[indexOf(task.chunk)].numSlots);
        break;
      case MutationKind::kChangeChunk:
        task.chunk = other(task.chunk, static_cast<int32_t>(role_.chunks.size()));
        break;
      case MutationKind::kChangeBody:
        task.body = other(task.body, static_cast<int32_t>(role_.bodies.size()));
        break;
      default:
        task.direction = static_cast<Direction>(other(static_cast<int32_t>(task.direction), 4));
    }
    return task == before ? "" : fmt::format("{} {}", "task", t);
  }

  Program& program_;
  Role& role_;
  std::mt19937_64& rng_;
  Body* body_;
};

}  // namespace

std::string_view mutationName(MutationKind kind) { return kNames[static_cast<size_t>(kind)]; }

Mutation mutate(Program& program, MutationKind kind, bool oneRank, std::mt19937_64& rng) {
  Mutation mutation{kind, oneRank, ""};
  const size_t rank = static_cast<size_t>(rng() % program.ranks.size());
  auto role = static_cast<size_t>(program.ranks[rank].role);
  Program before = program;
  if (oneRank) {
    program.roles.push_back(Role(program.roles[role]));
    role = program.roles.size() - 1;
    program.ranks[rank].role = static_cast<int32_t>(role);
  }
  const std::string what = Mutator(program, program.roles[role], rng).apply(kind);
  if (what.empty()) {
    program = std::move(before);
    return mutation;
  }
  mutation.description = oneRank ? fmt::format("rank {}: {}", rank, what)
                                 : fmt::format("role {}: {}", program.roles[role].name, what);
  return mutation;
}

Mutation mutate(Program& program, std::mt19937_64& rng) {
  const auto kind = static_cast<MutationKind>(rng() % kNumMutationKinds);
  const bool oneRank = rng() % 2 == 0;
  return mutate(program, kind, oneRank, rng);
}

}  // namespace trireme::testing
