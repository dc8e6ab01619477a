#include "runtime/device/cuda/matmul_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "ir/program/checksum.h"
#include "runtime/comm/exchange.h"
#include "runtime/device/cuda/matmul_cache.h"

namespace trireme::runtime::cuda {
namespace {

// Finite and not zero as a number of any type: GPUs work faster on zeros.
constexpr uint8_t kFiller = 0x3C;

struct Product {
  std::string kind, key;
  int32_t timer = 0;  // the first rank of the kind that has it
};

std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class Tuner {
 public:
  Tuner(CudaRank& rank, Communicator& control, const MatmulTuning& tuning,
        std::vector<std::string>& notes)
      : rank_(rank), control_(control), tuning_(tuning), notes_(notes), calls_(rank.products()) {}

  Status run() {
    TRIREME_RETURN_IF_ERROR(meet());
    if (!tuning_.isOn) return rehearse();
    TRIREME_RETURN_IF_ERROR(shareCache());
    for (const Product& product : products_)
      if (!known_.contains({product.kind, product.key})) TRIREME_RETURN_IF_ERROR(settle(product));
    TRIREME_RETURN_IF_ERROR(apply());
    keep();
    return rehearse();
  }

 private:
  int32_t self() const { return control_.rank(); }
  const std::string& kind() const { return kinds_[static_cast<size_t>(self())]; }
  bool isKeeper() const {
    return !tuning_.cacheFolder.empty() &&
           std::find(kinds_.begin(), kinds_.end(), kind()) == kinds_.begin() + self();
  }

  // What every rank's GPU is, and that all want the same. Of ranks of one kind with equal products
  // (those of a role have them) the first one lists them.
  Status meet() {
    std::string list;
    for (const MatmulCall& call : calls_) list += rank_.keyOf(call) + '\n';
    const std::string say = tuning_.isOn ? "timed " : "proposed ";
    const std::string products = fmt::format("\n{} {:08x}", list.size(), program::crc32c(list));
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                             control_.exchange(say + kindOf(rank_.gpu()) + products));
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].starts_with(say))
        return invalidArgument(fmt::format(
            "ranks {} and {} disagree whether to time matrix products: start all with the same "
            "flags",
            self(), i));
      kinds_.push_back(all[i].substr(say.size(), all[i].find('\n') - say.size()));
    }
    const bool isFirst =
        std::find(all.begin(), all.end(), all[static_cast<size_t>(self())]) == all.begin() + self();
    return tuning_.isOn ? listProducts(isFirst ? list : "") : Status();
  }

  Status listProducts(const std::string& mine) {
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all, exchangeLong(control_, mine));
    std::set<std::pair<std::string, std::string>> listed;
    for (size_t i = 0; i < all.size(); ++i)
      for (const std::string& key : linesOf(all[i]))
        if (listed.insert({kinds_[i], key}).second)
          products_.push_back({kinds_[i], key, static_cast<int32_t>(i)});
    return {};
  }

  Status shareCache() {
    std::string mine;
    if (isKeeper()) {
      MatmulCache cache = readMatmulCache(path(), kind(), files_);
      if (!cache.note.empty()) notes_.push_back(cache.note);
      kept_ = std::move(cache.timed);
      for (const Product& product : products_)
        if (const auto found = kept_.find(product.key);
            product.kind == kind() && found != kept_.end())
          mine += printTimed(found->first, found->second) + '\n';
    }
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all, exchangeLong(control_, mine));
    for (size_t i = 0; i < all.size(); ++i)
      for (const std::string& line : linesOf(all[i]))
        TRIREME_RETURN_IF_ERROR(learn(static_cast<int32_t>(i), line));
    return {};
  }

  Status settle(const Product& product) {
    std::string mine;
    if (product.timer == self()) {
      const Result<TimedAlgorithm> timed = time(product);
      if (!timed.has_value()) return timed.error().withContext(fmt::format("rank {}", self()));
      mine = printTimed(product.key, *timed);
    }
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all, control_.exchange(mine));
    TRIREME_RETURN_IF_ERROR(learn(product.timer, all[static_cast<size_t>(product.timer)]));
    if (product.kind == kind()) hasNews_ = true;
    return {};
  }

  Result<TimedAlgorithm> time(const Product& product) {
    if (!isFilled_) TRIREME_RETURN_IF_ERROR(rank_.fillArena(kFiller));
    isFilled_ = true;
    const auto occupy = [&] { return rank_.occupy(kFiller); };
    for (const MatmulCall& call : calls_)
      if (rank_.keyOf(call) == product.key)
        return timeFastest(rank_.gpu(), call, rank_.workspace(),
                           rank_.stream(program::Stream::kCompute), occupy);
    return Error(internalError(fmt::format("rank {} has no {}", self(), product.key)));
  }

  // What rank `from` says of a product of its kind.
  Status learn(int32_t from, const std::string& line) {
    auto timed = parseTimed(line);
    if (!timed.has_value())
      return timed.error().withContext(fmt::format("rank {} told rank {}", from, self()));
    known_[{kinds_[static_cast<size_t>(from)], timed->first}] = timed->second;
    return {};
  }

  Status apply() {
    for (const MatmulCall& call : calls_) {
      const auto found = known_.find({kind(), rank_.keyOf(call)});
      if (found == known_.end())
        return internalError(fmt::format("rank {}: nobody timed {}", self(), rank_.keyOf(call)));
      const MatmulAlgorithm& algorithm = found->second.algorithm;
      const Status status =
          call.matmul->accepts(call.alignment, algorithm, rank_.workspace().bytes);
      if (!status.ok())
        return invalidArgument(
            fmt::format("rank {}: {}: {}{}", self(), found->first.second, status.message(),
                        tuning_.cacheFolder.empty() ? "" : fmt::format("; delete {}", path())));
      call.matmul->use(call.alignment, algorithm);
    }
    return {};
  }

  // Every product once, where it does not matter: the driver loads the code of a kernel when it is
  // launched first, for which it may wait for all that the GPU does, and within a step that may be
  // a collective whose peers wait for this rank.
  Status rehearse() {
    const StreamHandle stream = rank_.stream(program::Stream::kCompute);
    std::set<std::string> seen;
    for (const MatmulCall& call : calls_)
      if (seen.insert(rank_.keyOf(call)).second)
        TRIREME_RETURN_IF_ERROR(call.matmul->run(call.operands.data(), rank_.workspace(), stream));
    return rank_.fillArena(0);
  }

  // A file that cannot be written costs time in the next run, and nothing in this one.
  void keep() {
    if (!hasNews_ || !isKeeper()) return;
    for (const auto& [name, timed] : known_)
      if (name.first == kind()) kept_.insert_or_assign(name.second, timed);
    const Status status = writeMatmulCache(path(), kind(), kept_, files_);
    if (!status.ok())
      notes_.push_back(
          fmt::format("the algorithms of matrix products are not kept, and the next "
                      "run may choose others: {}",
                      status.message()));
  }

  std::string path() const { return matmulCachePath(tuning_.cacheFolder, kind()); }

  CudaRank& rank_;
  Communicator& control_;
  const MatmulTuning& tuning_;
  std::vector<std::string>& notes_;
  const std::vector<MatmulCall> calls_;
  PosixFileSystem files_;
  std::vector<std::string> kinds_;  // per rank
  std::vector<Product> products_;   // of all ranks, the same list for each
  std::map<std::pair<std::string, std::string>, TimedAlgorithm> known_;  // by kind and key
  TimedAlgorithms kept_;                                                 // in the file
  bool isFilled_ = false, hasNews_ = false;
};

}  // namespace

std::string kindOf(const Gpu& gpu) {
  return fmt::format("{}, compute capability {}.{}, cuBLASLt {}, driver {}", gpu.name(),
                     gpu.capability() / 10, gpu.capability() % 10, gpu.cublasLt().version(),
                     gpu.driverVersion());
}

Status tuneMatmuls(CudaRank& rank, Communicator& control, const MatmulTuning& tuning,
                   std::vector<std::string>& notes) {
  return Tuner(rank, control, tuning, notes).run();
}

}  // namespace trireme::runtime::cuda
