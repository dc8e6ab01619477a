// The binary form. Each struct has one list of its fields (`fields`), which writer and reader
// share, so that they cannot disagree.
//
//   "TRIRPROG"  u32 version  u64 payload bytes  u32 CRC-32C of the payload  payload
//
// Little endian. Integers and enums have their own width, lists and strings a u32 count in front.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

#include "ir/program/checksum.h"
#include "ir/program/text.h"

namespace trireme::program {
namespace {

constexpr std::string_view kMagic = "TRIRPROG";
// 2: loss scaling and tf32. 3: scaled rotary positions. 4: buckets in pieces, streams of
// reductions, gradients of weights apart. Older programs have none of what came later.
constexpr uint32_t kVersion = 4;
constexpr size_t kHeaderBytes = kMagic.size() + 4 + 8 + 4;

// `archive(field...)` for each struct; `archive.since(version, field...)` for fields that older
// versions do not have.
template <typename A>
void fields(A& a, RopeScaling& v) {
  a(v.kind, v.factor, v.lowFreqFactor, v.highFreqFactor, v.originalSequence);
}
template <typename A>
void fields(A& a, OpAttributes& v) {
  a(v.epsilon, v.probability, v.stream, v.headSize, v.headsPerGroup, v.ropeTheta, v.logicalVocab,
    v.scale, v.sequenceSharded, v.widthSharded);
  a.since(2, v.tf32);
  a.since(3, v.ropeScaling);
}
template <typename A>
void fields(A& a, OperandType& v) {
  a(v.dtype, v.dims);
}
template <typename A>
void fields(A& a, SegmentOp& v) {
  a(v.kind, v.attributes, v.inputs, v.outputs);
}
template <typename A>
void fields(A& a, Segment& v) {
  a(v.name, v.operands, v.temporary, v.ops);
}
template <typename A>
void fields(A& a, Buffer& v) {
  a(v.name, v.dtype, v.elements, v.offset, v.layerStride, v.slotStride, v.tpStride, v.dpStride);
}
template <typename A>
void fields(A& a, EventRef& v) {
  a(v.base, v.perSlot);
}
template <typename A>
void fields(A& a, Instruction& v) {
  a(v.kind, v.stream, v.segment, v.buffers, v.group, v.reduce, v.peerStage, v.virtualStage,
    v.bucket, v.count, v.length, v.reversed, v.event);
}
template <typename A>
void fields(A& a, Body& v) {
  a(v.name, v.instructions);
}
template <typename A>
void fields(A& a, TaskRecord& v) {
  a(v.body, v.chunk, v.microbatch, v.slot, v.direction);
}
template <typename A>
void fields(A& a, Chunk& v) {
  a(v.virtualStage, v.firstLayer, v.numLayers, v.numSlots, v.hasEmbedding, v.hasHead);
}
template <typename A>
void fields(A& a, Bucket& v) {
  a(v.name, v.elements, v.decay, v.sharded, v.parameter, v.gradient, v.master, v.moment1,
    v.moment2);
  a.since(4, v.pieces);
}
template <typename A>
void fields(A& a, Parameter& v) {
  a(v.name, v.dims, v.paddedDims, v.tpDim, v.bucket, v.offset, v.layerStride, v.firstLayer,
    v.numLayers, v.init, v.initStd, v.logicalIndex, v.logicalStride, v.copy);
}
template <typename A>
void fields(A& a, Role& v) {
  a(v.name, v.stage, v.arenaBytes, v.numEvents, v.buffers, v.chunks, v.buckets, v.parameters,
    v.bodies, v.tasks, v.loss, v.squares, v.workspace);
  a.since(2, v.lossScaling);
}
template <typename A>
void fields(A& a, RankInfo& v) {
  a(v.role, v.tpIndex, v.dpIndex, v.ppIndex, v.group);
}
template <typename A>
void fields(A& a, Group& v) {
  a(v.kind, v.ranks);
}
template <typename A>
void fields(A& a, Training& v) {
  a(v.seed, v.sequenceLength, v.globalBatchSize, v.microbatchSize, v.numMicrobatches, v.vocabSize,
    v.modelFingerprint, v.learningRate, v.minLearningRate, v.warmupSteps, v.decaySteps, v.beta1,
    v.beta2, v.epsilon, v.weightDecay, v.clipNorm, v.embeddingDropout, v.attentionDropout,
    v.residualDropout, v.computeDType, v.stateDType);
  a.since(2, v.initialLossScale, v.minLossScale, v.lossScaleWindow);
}
template <typename A>
void fields(A& a, Program& v) {
  a(v.model, v.tp, v.pp, v.dp, v.virtualStages, v.numLayers, v.training, v.segments, v.roles,
    v.ranks, v.groups);
}

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 1, uint8_t,
                                std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <typename T>
void appendNumber(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

class Writer {
 public:
  template <typename... T>
  void operator()(T&... values) {
    (write(values), ...);
  }
  template <typename... T>
  void since(uint32_t, T&... values) {
    (write(values), ...);
  }
  std::string take() { return std::move(out_); }

 private:
  template <typename T>
  void write(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      if constexpr (std::is_floating_point_v<T>) {
        appendNumber(out_, std::bit_cast<Bits<T>>(value));
      } else {
        appendNumber(out_, static_cast<Bits<T>>(value));
      }
    } else {
      fields(*this, value);
    }
  }
  void write(std::string& text) {
    appendNumber(out_, static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  void write(std::vector<bool>& flags) {
    appendNumber(out_, static_cast<uint32_t>(flags.size()));
    for (const bool flag : flags) out_.push_back(flag ? 1 : 0);
  }
  template <typename T>
  void write(std::vector<T>& list) {
    appendNumber(out_, static_cast<uint32_t>(list.size()));
    for (T& value : list) write(value);
  }
  template <typename T, size_t kCount>
  void write(std::array<T, kCount>& list) {
    for (T& value : list) write(value);
  }

  std::string out_;
};

template <typename T>
T loadNumber(std::string_view bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[at + i])) << (8 * i));
  return value;
}

// The largest value of each enum of the format.
constexpr int largest(DType) { return static_cast<int>(DType::kI32); }
constexpr int largest(RngStream) { return static_cast<int>(RngStream::kDataShuffle); }
constexpr int largest(RopeScalingKind) { return kNumRopeScalingKinds - 1; }
constexpr int largest(OpKind) { return kNumOpKinds - 1; }
constexpr int largest(InstructionKind) { return kNumInstructionKinds - 1; }
constexpr int largest(Stream) { return kNumStreams - 1; }
constexpr int largest(GroupKind) { return kNumGroupKinds - 1; }
constexpr int largest(ReduceOp) { return static_cast<int>(ReduceOp::kMax); }
constexpr int largest(Direction) { return static_cast<int>(Direction::kWeights); }
constexpr int largest(InitKind) { return static_cast<int>(InitKind::kNormal); }

// After the first error everything reads as empty. A list grows one element at a time, and every
// element takes at least a byte of the input, so memory is bounded by a multiple of the input.
class Reader {
 public:
  Reader(std::string_view bytes, uint32_t version) : bytes_(bytes), version_(version) {}

  template <typename... T>
  void operator()(T&... values) {
    (read(values), ...);
  }
  template <typename... T>
  void since(uint32_t version, T&... values) {
    if (version_ >= version) (read(values), ...);
  }
  const std::string& error() const { return error_; }
  bool atEnd() const { return at_ == bytes_.size(); }

 private:
  bool has(size_t count) {
    if (!error_.empty()) return false;
    if (count <= bytes_.size() - at_) return true;
    error_ = fmt::format("ends inside a field at byte {}", at_);
    return false;
  }
  template <typename T>
  T number() {
    if (!has(sizeof(T))) return 0;
    at_ += sizeof(T);
    return loadNumber<T>(bytes_, at_ - sizeof(T));
  }
  size_t count() {
    const auto n = number<uint32_t>();
    return has(n) ? n : 0;
  }

  template <typename T>
  void read(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = number<uint8_t>();
      if (byte > 1 && error_.empty()) error_ = fmt::format("bad flag before byte {}", at_);
      value = byte == 1;
    } else if constexpr (std::is_enum_v<T>) {
      const auto raw = number<Bits<T>>();
      if (raw > static_cast<Bits<T>>(largest(T{})) && error_.empty())
        error_ = fmt::format("unknown enumerator {} before byte {}", raw, at_);
      value = error_.empty() ? static_cast<T>(raw) : T{};
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = std::bit_cast<T>(number<Bits<T>>());
    } else {
      fields(*this, value);
    }
  }
  void read(std::string& text) {
    const size_t n = count();
    text.assign(bytes_.substr(at_, n));
    at_ += n;
  }
  void read(std::vector<bool>& flags) {
    const size_t n = count();
    for (size_t i = 0; i < n && error_.empty(); ++i) {
      bool flag = false;
      read(flag);
      flags.push_back(flag);
    }
  }
  template <typename T>
  void read(std::vector<T>& list) {
    const size_t n = count();
    for (size_t i = 0; i < n && error_.empty(); ++i) read(list.emplace_back());
  }
  template <typename T, size_t kCount>
  void read(std::array<T, kCount>& list) {
    for (T& value : list) read(value);
  }

  std::string_view bytes_;
  uint32_t version_;
  size_t at_ = 0;
  std::string error_;
};

Status bad(const std::string& what) { return invalidArgument("program: " + what); }

}  // namespace

std::string serialize(const Program& program) {
  Writer writer;
  fields(writer, const_cast<Program&>(program));  // One list of fields serves both ways.
  const std::string payload = writer.take();
  std::string bytes(kMagic);
  appendNumber(bytes, kVersion);
  appendNumber(bytes, static_cast<uint64_t>(payload.size()));
  appendNumber(bytes, crc32c(payload));
  return bytes + payload;
}

Result<Program> deserialize(const std::string& bytes) {
  const std::string_view all(bytes);
  const std::string_view magic = all.substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size()) || all.empty())
    return Error(bad("not a program (the file begins with something else)"));
  if (all.size() < kHeaderBytes)
    return Error(
        bad(fmt::format("truncated: {} bytes, the header has {}", all.size(), kHeaderBytes)));
  const auto version = loadNumber<uint32_t>(all, kMagic.size());
  if (version == 0 || version > kVersion)
    return Error(
        bad(fmt::format("version {} is newer than {}: use a newer trireme", version, kVersion)));
  const auto size = loadNumber<uint64_t>(all, kMagic.size() + 4);
  const std::string_view payload = all.substr(kHeaderBytes);
  if (payload.size() < size)
    return Error(bad(fmt::format("truncated: {} bytes of {}", payload.size(), size)));
  if (payload.size() > size)
    return Error(bad(fmt::format("corrupted: {} bytes behind the end", payload.size() - size)));
  if (crc32c(payload) != loadNumber<uint32_t>(all, kMagic.size() + 12))
    return Error(bad("corrupted: the checksum does not match"));
  Reader reader(payload, version);
  Program program;
  fields(reader, program);
  if (!reader.error().empty()) return Error(bad("corrupted: " + reader.error()));
  if (!reader.atEnd()) return Error(bad("corrupted: bytes behind the last field"));
  return program;
}

}  // namespace trireme::program
