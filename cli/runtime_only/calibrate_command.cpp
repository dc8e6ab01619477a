// trireme calibrate in a build of the runtime alone: measures GPUs for a full build, which makes a
// cluster of it.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "cli/calibrate/these_gpus.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/paths.h"
#include "cli/write_file.h"

namespace trireme::cli {
namespace {

struct CalibrateOptions {
  std::optional<int64_t> ranks;
  std::string output;
  bool gpu = false;
};

Result<int> runCalibrate(const CalibrateOptions& options) {
  TRIREME_RETURN_IF_ERROR(checkWritable(options.output));
  TRIREME_ASSIGN_OR_RETURN(
      const runtime::GpuMeasurements measurements,
      measureTheseGpus(options.ranks, [](const runtime::GpuInfo&, int64_t) { return Status(); }));
  TRIREME_RETURN_IF_ERROR(writeFile(options.output, runtime::printMeasurements(measurements)));
  const int64_t numGpus = measurements.numGpus;
  fmt::print("{:<14}{}{}\n", "GPU", measurements.gpu.name,
             numGpus == 1 ? "" : fmt::format(", {} at once", numGpus));
  fmt::print("{:<14}{} kernels, {} ways through the memory, {} transfers\n", "measured",
             measurements.kernels.size(), measurements.streams.size(),
             measurements.transfers.size());
  fmt::print("{:<14}{}\n", "written to", options.output);
  fmt::print("{:<14}trireme calibrate --gpu-measurements {} -o cluster.yaml\n", "full build",
             options.output);
  return kExitOk;
}

Action addCalibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  app.add_flag("--gpu", options->gpu, "Measure this machine's NVIDIA GPUs")->required();
  addCount(app, "--ranks", &options->ranks, "GPUs to measure, all at once (default: all)");
  addPath(app, "--save-measurements", &options->output, "FILE",
          "Write what was measured here (JSON), for --gpu-measurements of a full build")
      ->required();
  return [options] { return runCalibrate(*options); };
}

}  // namespace

const Command kCalibrateCommand = {
    "calibrate", "Measure this machine's GPUs; a full build makes a cluster file of it",
    "trireme calibrate --gpu --save-measurements gpus.json", addCalibrate};

}  // namespace trireme::cli
