#include "runtime/state/gather.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "runtime/state/elements.h"

namespace trireme::runtime {
namespace {

// Whether the rank's part of the tensor is a replica of what a rank before it has.
bool isReplica(const program::Program& program, const program::RankInfo& info,
               const program::Parameter& parameter, StateKind kind) {
  const program::Role& role = program.roles[static_cast<size_t>(info.role)];
  const auto& bucket = role.buckets[static_cast<size_t>(parameter.bucket)];
  const bool whole = !isSharded(bucket, kind) || program.dp == 1;
  return (parameter.tpDim < 0 && info.tpIndex > 0) || (whole && info.dpIndex > 0);
}

// Whether the rank has a part of the tensor that no rank before it has.
bool contributes(const TrainingState& state, const program::RankInfo& info,
                 const LogicalTensor& tensor, StateKind kind) {
  for (const LogicalTensor::Row& row : tensor.rows)
    if (row.role == info.role && !row.parameter->copy &&
        !isReplica(*state.program, info, *row.parameter, kind))
      return true;
  return false;
}

template <typename Visit>
void forEachHolder(const TrainingState& state, const LogicalTensor& tensor, const Visit& visit) {
  for (const LogicalTensor::Row& row : tensor.rows)
    for (const RankProgram& rank : state.ranks)
      if (rank.info.role == row.role) visit(rank, *row.parameter, row.layer);
}

// Calls visit(data, type, global, length) for all pieces of the ranks of this process.
template <typename Visit>
void forEachLocalPiece(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                       const Visit& visit) {
  forEachHolder(state, tensor,
                [&](const RankProgram& rank, const program::Parameter& parameter, int32_t layer) {
                  if (!parameter.copy && !isReplica(*state.program, rank.info, parameter, kind))
                    forEachPiece(rank, parameter, layer, kind, visit);
                });
}

// What goes to another process: of each piece where it begins, its length, its elements.
struct PieceHeader {
  int64_t global = 0, length = 0;
};

std::string pack(const TrainingState& state, const LogicalTensor& tensor, StateKind kind) {
  std::string packed;
  forEachLocalPiece(state, tensor, kind,
                    [&](const char* data, DType type, int64_t global, int64_t length) {
                      const PieceHeader header{global, length};
                      packed.append(reinterpret_cast<const char*>(&header), sizeof(header));
                      packed.append(data, static_cast<size_t>(length * byteSize(type)));
                    });
  return packed;
}

// False: it is not of this tensor.
bool unpack(std::string_view packed, int64_t elements, int64_t size, char* bytes) {
  while (!packed.empty()) {
    PieceHeader header;
    if (packed.size() < sizeof(header)) return false;
    std::memcpy(&header, packed.data(), sizeof(header));
    packed.remove_prefix(sizeof(header));
    if (header.global < 0 || header.length < 0 || header.length > elements ||
        header.global > elements - header.length ||
        packed.size() < static_cast<size_t>(header.length * size))
      return false;
    const auto count = static_cast<size_t>(header.length * size);
    std::memcpy(bytes + header.global * size, packed.data(), count);
    packed.remove_prefix(count);
  }
  return true;
}

}  // namespace

DType storedType(const TrainingState& state, StateKind kind) {
  const program::Training& training = state.program->training;
  return kind == StateKind::kParameter ? training.computeDType : training.stateDType;
}

Status gatherTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                    char* bytes) {
  if (state.others != nullptr && !state.others->gathersHere()) {
    const program::RankInfo& self = state.ranks.front().info;
    return contributes(state, self, tensor, kind) ? state.others->send(pack(state, tensor, kind))
                                                  : Status();
  }
  forEachLocalPiece(state, tensor, kind,
                    [&](const char* data, DType type, int64_t global, int64_t length) {
                      std::memcpy(bytes + global * byteSize(type), data,
                                  static_cast<size_t>(length * byteSize(type)));
                    });
  if (state.others == nullptr) return {};
  const int64_t size = byteSize(storedType(state, kind));
  for (int32_t rank = 0; rank < state.program->numRanks(); ++rank) {
    if (rank == state.ranks.front().rank ||
        !contributes(state, state.program->ranks[static_cast<size_t>(rank)], tensor, kind))
      continue;
    TRIREME_ASSIGN_OR_RETURN(const std::string packed, state.others->receive(rank));
    if (!unpack(packed, tensor.elements(), size, bytes))
      return internalError(
          fmt::format("rank {} sent what is not its part of {}", rank, tensor.name));
  }
  return {};
}

void scatterTensor(const TrainingState& state, const LogicalTensor& tensor, StateKind kind,
                   const char* bytes) {
  const DType stored = storedType(state, kind);
  const auto write = [&](char* data, DType type, int64_t global, int64_t length) {
    if (type == stored) {
      std::memcpy(data, bytes + global * byteSize(type),
                  static_cast<size_t>(length * byteSize(type)));
      return;
    }
    for (int64_t i = 0; i < length; ++i)
      storeElement(data, type, i, loadElement(bytes, stored, global + i));
  };
  forEachHolder(state, tensor,
                [&](const RankProgram& rank, const program::Parameter& parameter, int32_t layer) {
                  forEachPiece(rank, parameter, layer, kind, write);
                  if (kind == StateKind::kMaster)
                    forEachPiece(rank, parameter, layer, StateKind::kParameter, write);
                });
}

}  // namespace trireme::runtime
