#include "cli/calibrate/these_gpus.h"

#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <memory>

#include "cli/output/progress.h"

namespace trireme::cli {
namespace {

using runtime::MeasuredGpus;

// As many as there are, or as --ranks says.
Result<int64_t> countOf(const std::optional<int64_t>& asked, const runtime::cuda::Apis& apis) {
  TRIREME_ASSIGN_OR_RETURN(const int present, runtime::cuda::Gpu::count(apis));
  if (present == 0) return Error(unavailable("no GPU: the driver has none"));
  if (asked.value_or(0) > present)
    return Error(unavailable(fmt::format(
        "--ranks {}: there are {} GPUs, and each rank has one of its own", *asked, present)));
  return asked.value_or(present);
}

}  // namespace

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

Result<runtime::GpuMeasurements> measureTheseGpus(const std::optional<int64_t>& numGpus,
                                                  const AcceptGpus& accept) {
  TRIREME_ASSIGN_OR_RETURN(runtime::cuda::Apis apis, runtime::cuda::loadApis(false));
  TRIREME_ASSIGN_OR_RETURN(const int64_t count, countOf(numGpus, apis));
  if (count > 1) {
    Result<const runtime::cuda::NcclApi*> nccl = runtime::cuda::loadNccl();
    if (!nccl.has_value())
      return Error(unavailable(nccl.error().message() + "; --ranks 1 measures one GPU"));
    apis.nccl = *nccl;
  }
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<MeasuredGpus> gpus,
                           MeasuredGpus::open(apis, static_cast<int32_t>(count), {}));
  TRIREME_RETURN_IF_ERROR(accept(gpus->info(), count));
  Progress progress;
  runtime::GpuMeasureOptions options;
  options.date = today();
  options.progress = [&](double done, const std::string& what) { progress.update(done, what); };
  return takeMeasurements(*gpus, options);
}

}  // namespace trireme::cli
