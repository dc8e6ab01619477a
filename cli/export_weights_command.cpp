// trireme export-weights: a checkpoint in the form that Hugging Face transformers reads.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/paths.h"
#include "cli/run/checkpoint_folder.h"
#include "cli/weights/hugging_face.h"
#include "cli/write_file.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"

namespace trireme::cli {
namespace {

constexpr const char *kWeights = "model.safetensors", *kConfig = "config.json",
                     *kIndex = "model.safetensors.index.json";

enum class WeightType { kFp32, kBf16, kFp16 };

std::string_view typeName(WeightType type) {
  constexpr std::string_view kNames[] = {"fp32", "bf16", "fp16"};
  return kNames[static_cast<size_t>(type)];
}

struct ExportOptions {
  std::string checkpoint, model, output;
  std::optional<WeightType> type;
};

// A folder that is made for the files goes if they cannot be written.
Status writeFolder(const std::filesystem::path& folder, const std::function<Status()>& writeFiles) {
  const bool isNew = !std::filesystem::exists(folder);
  TRIREME_RETURN_IF_ERROR(createFolder(folder.string()));
  Status status = writeFiles();
  std::error_code ignored;
  if (!status.ok() && isNew)
    std::filesystem::remove(folder, ignored);  // unless there is more in it
  return status;
}

// An earlier export is replaced; weights and configurations of others are not, nor do new weights
// go beside theirs. `config`: what is to be written, which may be there.
Status checkReplaceable(const std::filesystem::path& folder, const std::string& config) {
  runtime::PosixFileSystem files;
  const bool isOurs = runtime::isWrittenByUs((folder / kWeights).string(), files);
  for (const auto& [name, mayBeOurs] :
       {std::pair(kWeights, true), std::pair(kConfig, true), std::pair(kIndex, false)}) {
    const std::string path = (folder / name).string();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored) || (isOurs && mayBeOurs)) continue;
    if (name == kConfig && spec::readFile(path).value_or("") == config) continue;
    return invalidArgument(fmt::format(
        "-o {}: has {}, which is not known to be of trireme export-weights; remove it or "
        "give another folder",
        folder.string(), name));
  }
  return {};
}

Result<int> runExport(const ExportOptions& options) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBf16, DType::kF16};
  const DType type = kTypes[static_cast<size_t>(options.type.value_or(WeightType::kFp32))];
  TRIREME_ASSIGN_OR_RETURN(const spec::ModelSpec model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(const runtime::ForeignWeights weights, huggingFaceWeights(model));
  TRIREME_ASSIGN_OR_RETURN(const std::string config, huggingFaceConfig(model));
  TRIREME_ASSIGN_OR_RETURN(const std::string checkpoint, findCheckpoint(options.checkpoint));
  const std::filesystem::path folder(options.output);
  const std::string file = (folder / kWeights).string();
  const std::string configFile = (folder / kConfig).string();
  TRIREME_RETURN_IF_ERROR(checkOutputs({{"CHECKPOINT", checkpoint}, {"--model", options.model}},
                                       {{"-o", file}, {"-o", configFile}}));
  TRIREME_RETURN_IF_ERROR(checkReplaceable(folder, config));
  TRIREME_RETURN_IF_ERROR(writeFolder(folder, [&]() -> Status {
    runtime::PosixFileSystem files;
    TRIREME_RETURN_IF_ERROR(
        runtime::writeForeignWeights(checkpoint, weights, type, true, file, files));
    return writeFile(configFile, config);
  }));
  fmt::print("{:<14}{}\n{:<14}{}, {} tensors of {}\n", "checkpoint", checkpoint, "written", file,
             weights.tensors.size(), dtypeName(type));
  return kExitOk;
}

Action addExportWeights(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  addPath(app, "CHECKPOINT", &options->checkpoint, "",
          "File that `trireme run --save` wrote, or a folder of them: the latest")
      ->required();
  addPath(app, "--model", &options->model, "NAME|FILE", "The model that was trained")->required();
  addPath(app, "-o,--output", &options->output, "DIR",
          "Folder for the weights and config.json; replaces an earlier export")
      ->required();
  addChoice(app, "--precision", &options->type, typeName, WeightType::kFp16,
            "Type of the weights (default: fp32)");
  return [options] { return runExport(*options); };
}

}  // namespace

const Command kExportWeightsCommand = {
    "export-weights", "Write a checkpoint as Hugging Face weights",
    "trireme export-weights checkpoints --model gpt2-124m -o gpt2-trained", addExportWeights};

}  // namespace trireme::cli
