// What the host reads and writes of the ranks' memory goes through an image of it: on a device that
// is a copy, which these keep true.
#include "runtime/session_impl.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {
namespace {

std::span<char> bytesOf(const BucketView& view) {
  return {view.data, static_cast<size_t>((view.end - view.begin) * byteSize(view.type))};
}

Status fetchBuckets(RankDevice& device, const RankProgram& rank, StateKind kind) {
  for (int32_t b = 0; b < std::ssize(rank.role->buckets); ++b)
    for (const BucketView& view : bucketViews(rank, b, kind)) {
      const std::span<char> bytes = bytesOf(view);
      TRIREME_RETURN_IF_ERROR(device.fetch(bytes.data(), std::ssize(bytes)));
    }
  return {};
}

}  // namespace

Result<std::span<const double>> Session::Impl::fetchDoubles(const RankProgram& rank,
                                                            int32_t buffer) const {
  const program::Buffer& info = rank.role->buffers[static_cast<size_t>(buffer)];
  char* data = rank.address(buffer);
  RankDevice& device = deviceOf(rank.rank);
  TRIREME_RETURN_IF_ERROR(device.fetch(data, info.bytes()));
  return std::span(reinterpret_cast<const double*>(data), static_cast<size_t>(info.elements));
}

Result<program::LossScaling> Session::Impl::fetchLossScaling(const RankProgram& rank) const {
  program::LossScaling* const scaling = rank.lossScaling();
  TRIREME_RETURN_IF_ERROR(deviceOf(rank.rank).fetch(scaling, sizeof(*scaling)));
  return *scaling;
}

Status Session::Impl::fetchState(StateKind kind) const {
  for (const RankProgram& rank : ranks)
    TRIREME_RETURN_IF_ERROR(fetchBuckets(deviceOf(rank.rank), rank, kind));
  return {};
}

Status Session::Impl::fetchCheckpointState() const {
  for (StateKind kind : {StateKind::kMaster, StateKind::kMoment1, StateKind::kMoment2})
    TRIREME_RETURN_IF_ERROR(fetchState(kind));
  return {};
}

Status Session::Impl::storeWeights(int32_t rank) const {
  const RankProgram& image = ranks[indexOf(rank)];
  RankDevice& device = deviceOf(rank);
  for (int32_t b = 0; b < std::ssize(image.role->buckets); ++b)
    for (StateKind kind :
         {StateKind::kParameter, StateKind::kMaster, StateKind::kMoment1, StateKind::kMoment2})
      for (const BucketView& view : bucketViews(image, b, kind)) {
        const std::span<const char> bytes = bytesOf(view);
        TRIREME_RETURN_IF_ERROR(device.store(bytes.data(), std::ssize(bytes)));
      }
  program::LossScaling* const scaling = image.lossScaling();
  if (scaling == nullptr) return {};
  *scaling = progress.lossScaling;
  return device.store(scaling, sizeof(*scaling));
}

Status Session::Impl::storeAllWeights() const {
  for (const RankProgram& rank : ranks) TRIREME_RETURN_IF_ERROR(storeWeights(rank.rank));
  return {};
}

}  // namespace trireme::runtime
