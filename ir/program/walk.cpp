#include "ir/program/walk.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::program {

Arity arityOf(OpKind kind) {
  switch (kind) {
    case OpKind::kDropout:
    case OpKind::kGelu:
    case OpKind::kSwiGlu:
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
    case OpKind::kLossMax:
    case OpKind::kPositionGrad:
    case OpKind::kBiasGrad:
      return {1, 1};
    case OpKind::kAttention:
      return {1, 2};
    case OpKind::kEmbedding:
    case OpKind::kAddPosition:
    case OpKind::kMatmul:
    case OpKind::kBiasAdd:
    case OpKind::kAdd:
    case OpKind::kLossSumExp:
    case OpKind::kTokenLoss:
    case OpKind::kEmbeddingGrad:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight:
    case OpKind::kGeluGrad:
    case OpKind::kSwiGluGrad:
      return {2, 1};
    case OpKind::kRmsNorm:
      return {2, 2};
    case OpKind::kLossTarget:
      return {3, 1};
    case OpKind::kLayerNorm:
      return {3, 3};
    case OpKind::kAttentionGrad:
    case OpKind::kLossGrad:
      return {4, 1};
    case OpKind::kRmsNormGrad:
      return {4, 2};
    case OpKind::kLayerNormGrad:
      return {5, 3};
  }
  return {};
}

bool isAccumulated(OpKind kind, size_t output) {
  switch (kind) {
    case OpKind::kTokenLoss:
    case OpKind::kEmbeddingGrad:
    case OpKind::kPositionGrad:
    case OpKind::kMatmulGradWeight:
    case OpKind::kBiasGrad:
      return true;
    case OpKind::kLayerNormGrad:
    case OpKind::kRmsNormGrad:
      return output > 0;
    default:
      return false;
  }
}

bool mayWriteInPlace(OpKind kind) {
  switch (kind) {
    case OpKind::kAddPosition:
    case OpKind::kDropout:
    case OpKind::kBiasAdd:
    case OpKind::kGelu:
    case OpKind::kSwiGlu:
    case OpKind::kRotary:
    case OpKind::kAdd:
    case OpKind::kGeluGrad:
    case OpKind::kSwiGluGrad:
    case OpKind::kRotaryGrad:
    case OpKind::kLossGrad:
      return true;
    default:
      return false;
  }
}

bool takes(Stream stream, InstructionKind kind) {
  if (stream == Stream::kCompute || kind == InstructionKind::kWait) return true;
  return isMessageStream(stream) ? isMessage(kind) : isCollective(kind);
}

std::string_view streamName(Stream stream) {
  switch (stream) {
    case Stream::kCompute:
      return "compute";
    case Stream::kRecvForward:
      return "recv_forward";
    case Stream::kSendForward:
      return "send_forward";
    case Stream::kRecvBackward:
      return "recv_backward";
    case Stream::kSendBackward:
      return "send_backward";
    case Stream::kDpReduce:
      return "dp_reduce";
    case Stream::kTpReduce:
      return "tp_reduce";
  }
  return "unknown";
}

std::string_view groupKindName(GroupKind kind) {
  switch (kind) {
    case GroupKind::kTp:
      return "tp";
    case GroupKind::kDp:
      return "dp";
    case GroupKind::kPp:
      return "pp";
    case GroupKind::kEmbedding:
      return "embedding";
    case GroupKind::kModel:
      return "model";
    case GroupKind::kWorld:
      return "world";
  }
  return "unknown";
}

std::string_view directionName(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kStep:
      return "step";
    case Direction::kWeights:
      return "weights";
  }
  return "unknown";
}

bool splitsBackward(const Role& role) {
  return std::any_of(role.tasks.begin(), role.tasks.end(),
                     [](const TaskRecord& task) { return task.direction == Direction::kWeights; });
}

std::string taskName(const TaskRecord& task) {
  if (task.direction == Direction::kStep) return "step";
  return fmt::format("{}{}.{}", directionLetter(task.direction), task.chunk, task.microbatch);
}

char directionLetter(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return 'F';
    case Direction::kBackward:
      return 'B';
    case Direction::kStep:
      return 'S';
    case Direction::kWeights:
      return 'W';
  }
  return '?';
}

}  // namespace trireme::program
