// What the processes of a run tell each other between steps. Where all ranks are threads of this
// process there is nothing to tell.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <type_traits>

#include "ir/program/checksum.h"
#include "ir/program/cliques.h"
#include "ir/program/text.h"
#include "runtime/comm/wire.h"
#include "runtime/device/cuda/gpu.h"
#include "runtime/session_impl.h"

namespace trireme::runtime {
namespace {

constexpr int64_t kTracePart = int64_t{1} << 24;  // of a trace: bytes sent at a time

// The numbers of a step that one rank knows and all need.
struct Words {
  double loss = 0, gradNorm = 0;
  uint64_t hasLoss = 0;
};

template <typename T>
std::string bytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
Result<T> valueOf(const std::string& bytes, int32_t rank) {
  T value;
  if (bytes.size() != sizeof(value))
    return Error(invalidArgument(fmt::format("rank {} runs another program", rank)));
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

Status disagreement(const std::string& name, const std::string& ofZero, const std::string& other,
                    int32_t rank) {
  return invalidArgument(fmt::format("processes disagree: {} is {} for rank 0 and {} for rank {}",
                                     name, ofZero, other, rank));
}

}  // namespace

Status Session::Impl::shared(Status status) {
  if (others != nullptr && !status.ok()) world->fail(firstRank, status);
  return status;
}

Status Session::Impl::failureOfOthers() const {
  const bool isOfAnother = others != nullptr && world->failedRank() != firstRank;
  return isOfAnother ? options.processes->gaveUp() : world->failure();
}

// Nobody begins before all are ready, and all have the same program.
Status Session::Impl::agreeOnProgram() {
  if (others == nullptr) return {};
  std::vector<std::vector<int32_t>> groups;
  for (const program::Group& group : bundle.program.groups) groups.push_back(group.ranks);
  std::set<int32_t> peers;
  int64_t largest = 0;
  if (!program::isGpuArch(bundle.target.arch)) {  // else NCCL has connections of its own
    TRIREME_ASSIGN_OR_RETURN(peers, program::peersOf(bundle.program, firstRank));
  }
  for (const program::Role& role : bundle.program.roles)
    largest = std::max(largest, role.arenaBytes);
  // A tensor's smallest piece is one bf16, which comes with 16 bytes about where it belongs.
  constexpr int64_t kMostPerByte = 9;
  TRIREME_RETURN_IF_ERROR(shared(options.processes->connect(
      std::move(groups), peers,
      static_cast<uint64_t>(std::max(kMostPerByte * largest, kTracePart)))));
  return agreeOn({{"checksum of the bundle's program",
                   std::to_string(program::crc32c(program::serialize(bundle.program)))}});
}

// Every process finds the same difference: facts in their order, each for all ranks against rank 0.
Status Session::Impl::agreeOn(const std::vector<Fact>& facts) {
  if (others == nullptr) return {};
  std::vector<std::string> mine;
  for (const Fact& fact : facts) mine.insert(mine.end(), {fact.name, fact.value});
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           options.processes->exchange(wire::encode(mine), false));
  std::vector<std::vector<std::string>> said;
  for (int32_t rank = 0; rank < std::ssize(all); ++rank) {
    Result<std::vector<std::string>> words =
        wire::decodeWords(all[static_cast<size_t>(rank)], mine.size());
    if (!words.has_value())
      return shared(invalidArgument(
          fmt::format("rank {} says other things than rank {}: start all with the same trireme",
                      rank, firstRank)));
    said.push_back(*std::move(words));
  }
  for (size_t i = 0; i < mine.size(); i += 2)
    for (size_t rank = 1; rank < said.size(); ++rank)
      if (said[rank][i] != said[0][i] || said[rank][i + 1] != said[0][i + 1])
        return shared(disagreement(said[0][i], said[0][i + 1], said[rank][i + 1],
                                   static_cast<int32_t>(rank)));
  return {};
}

Status Session::agree(const std::vector<Fact>& facts) {
  TRIREME_RETURN_IF_ERROR(impl_->failure);
  return impl_->agreeOn(facts);
}

Status Session::Impl::exchangeResult(StepResult& result, bool hasLoss) {
  if (others == nullptr) return {};
  const Words mine{result.loss, result.gradNorm, hasLoss ? uint64_t{1} : 0};
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           options.processes->exchange(bytesOf(mine), true));
  for (int32_t rank = 0; rank < std::ssize(all); ++rank) {
    TRIREME_ASSIGN_OR_RETURN(const Words theirs,
                             valueOf<Words>(all[static_cast<size_t>(rank)], rank));
    if (theirs.hasLoss != 0) result.loss = theirs.loss;
    if (rank == 0) result.gradNorm = theirs.gradNorm;
  }
  return {};
}

Result<bool> Session::anyProcess(bool mine) {
  if (impl_->others == nullptr) return mine;
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                           impl_->options.processes->exchange(mine ? "y" : "n", false));
  return std::find(all.begin(), all.end(), "y") != all.end();
}

Result<std::vector<program::TraceEvent>> Session::gatherTrace() {
  std::vector<program::TraceEvent> events = takeTrace();
  if (impl_->others == nullptr) return events;
  static_assert(std::is_trivially_copyable_v<program::TraceEvent>);
  constexpr size_t kSize = sizeof(program::TraceEvent);
  constexpr size_t kPart = static_cast<size_t>(kTracePart) / kSize;  // a shorter one is the last
  if (!impl_->others->gathersHere()) {
    for (size_t begin = 0; begin <= events.size(); begin += kPart) {
      const size_t count = std::min(kPart, events.size() - begin);
      const auto* data = reinterpret_cast<const char*>(events.data() + begin);
      if (Status status = impl_->others->send(std::string(data, count * kSize)); !status.ok())
        return Error(status);
    }
    return std::vector<program::TraceEvent>();
  }
  for (int32_t rank = 1; rank < impl_->options.processes->numProcesses(); ++rank)
    for (size_t count = kPart; count == kPart;) {
      TRIREME_ASSIGN_OR_RETURN(const std::string bytes, impl_->others->receive(rank));
      const size_t before = events.size();
      count = bytes.size() / kSize;
      events.resize(before + count);
      if (count > 0) std::memcpy(events.data() + before, bytes.data(), count * kSize);
    }
  return events;
}

}  // namespace trireme::runtime
