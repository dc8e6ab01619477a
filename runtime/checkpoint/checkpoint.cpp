#include "runtime/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "ir/program/checksum.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/state/elements.h"

namespace trireme::runtime {
namespace {

constexpr std::string_view kFormat = "trireme.checkpoint";
constexpr int kVersionWithHeaderChecksum = 2;
const std::string kData = "data", kFingerprint = "model_fingerprint";
const std::string kHeaderChecksum = "header_crc32c";

constexpr std::string_view kOptimizerPrefix = "optimizer.";

struct Kind {
  StateKind kind;
  std::string_view prefix;
};
constexpr Kind kKinds[] = {{StateKind::kMaster, ""},
                           {StateKind::kMoment1, "optimizer.moment1."},
                           {StateKind::kMoment2, "optimizer.moment2."}};

struct ScalingField {
  const char* key;
  double program::LossScaling::* member;
};
constexpr ScalingField kScalingFields[] = {{"loss_scale", &program::LossScaling::scale},
                                           {"good_steps", &program::LossScaling::goodSteps},
                                           {"taken_steps", &program::LossScaling::takenSteps},
                                           {"skipped_steps", &program::LossScaling::skippedSteps}};

// One tensor of the file and where it comes from.
struct Item {
  const LogicalTensor* tensor = nullptr;
  StateKind kind = StateKind::kMaster;
};

std::vector<Item> itemsOf(const TrainingState& state) {
  std::vector<Item> items;
  for (const LogicalTensor& tensor : *state.tensors)
    for (const Kind& kind : kKinds) items.push_back({&tensor, kind.kind});
  return items;
}

std::string nameOf(const Item& item) {
  for (const Kind& kind : kKinds)
    if (kind.kind == item.kind) return std::string(kind.prefix) + item.tensor->name;
  return item.tensor->name;
}

// What a continuation must have in common with the run that wrote the file.
std::vector<std::pair<std::string, std::string>> settingsOf(const program::Training& training) {
  return {{kFingerprint, std::to_string(training.modelFingerprint)},
          {"seed", std::to_string(training.seed)},
          {"global_batch_size", std::to_string(training.globalBatchSize)},
          {"sequence_length", std::to_string(training.sequenceLength)}};
}

// What a continuation may have otherwise, and is told of.
std::vector<std::pair<std::string, std::string>> freeSettingsOf(const program::Training& training) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  std::vector<std::pair<std::string, std::string>> settings = {
      {"compute_dtype", std::string(dtypeName(training.computeDType))},
      {"learning_rate", number(training.learningRate)},
      {"min_learning_rate", number(training.minLearningRate)},
      {"warmup_steps", number(training.warmupSteps)},
      {"decay_steps", number(training.decaySteps)},
      {"beta1", number(training.beta1)},
      {"beta2", number(training.beta2)},
      {"epsilon", number(training.epsilon)},
      {"weight_decay", number(training.weightDecay)},
      {"clip_norm", number(training.clipNorm)},
      {"embedding_dropout", number(training.embeddingDropout)},
      {"attention_dropout", number(training.attentionDropout)},
      {"residual_dropout", number(training.residualDropout)}};
  if (training.scalesLoss()) {
    settings.emplace_back("loss_scale_window", number(training.lossScaleWindow));
    settings.emplace_back("min_loss_scale", number(training.minLossScale));
  }
  return settings;
}

std::string formatChecksums(const std::vector<uint32_t>& checksums) {
  return fmt::format("{:08x}", fmt::join(checksums, " "));
}

std::string headerChecksum(SafetensorsHeader header) {
  header.metadata.erase(kHeaderChecksum);
  return formatChecksums({program::crc32c(formatHeader(header))});
}

SafetensorsHeader makeHeader(const TrainingState& state, const std::vector<Item>& items,
                             const TrainedSoFar& progress) {
  SafetensorsHeader header;
  const program::Training& training = state.program->training;
  header.metadata["format"] = kFormat;
  header.metadata["version"] = std::to_string(kCheckpointVersion);
  header.metadata["model"] = state.program->model;
  header.metadata["step"] = std::to_string(progress.stepsDone);
  header.metadata["next_sample"] = std::to_string(progress.stepsDone * training.globalBatchSize);
  if (!progress.data.empty()) header.metadata[kData] = progress.data;
  for (const auto& settings : {settingsOf(training), freeSettingsOf(training)})
    for (const auto& [key, value] : settings) header.metadata[key] = value;
  if (training.scalesLoss())
    for (const ScalingField& field : kScalingFields)
      header.metadata[field.key] = fmt::format("{}", progress.lossScaling.*field.member);
  int64_t at = 0;
  for (const Item& item : items) {
    TensorEntry entry{nameOf(item), storedType(state, item.kind), item.tensor->dims, at, 0};
    at += item.tensor->elements() * byteSize(entry.dtype);
    entry.end = at;
    header.tensors.push_back(std::move(entry));
  }
  return header;
}

// Nothing goes on from values that are no numbers, and the last checkpoint is the one to resume.
Status checkFinite(const TensorEntry& entry, const std::vector<char>& bytes) {
  const auto count = static_cast<int64_t>(bytes.size()) / byteSize(entry.dtype);
  for (int64_t i = 0; i < count; ++i)
    if (const double value = loadElement(bytes.data(), entry.dtype, i); !std::isfinite(value))
      return invalidArgument(fmt::format("tensor {}: element {} is {}: the training has diverged",
                                         entry.name, i,
                                         std::isnan(value) ? "nan" : fmt::format("{}", value)));
  return {};
}

// The checksums come first in the file and are known last: their places are reserved.
Status writeAll(const TrainingState& state, const TrainedSoFar& progress, OutputFile& file) {
  const std::vector<Item> items = itemsOf(state);
  SafetensorsHeader header = makeHeader(state, items, progress);
  std::vector<uint32_t> checksums(items.size());
  header.metadata["crc32c"] = formatChecksums(checksums);
  header.metadata[kHeaderChecksum] = formatChecksums({0});
  const auto dataOffset = static_cast<int64_t>(formatHeader(header).size());
  if (dataOffset > kMaxHeaderBytes) return internalError("too many tensors for a checkpoint");
  std::vector<char> bytes;
  for (size_t i = 0; i < items.size(); ++i) {
    const TensorEntry& entry = header.tensors[i];
    bytes.assign(static_cast<size_t>(entry.end - entry.begin), 0);
    TRIREME_RETURN_IF_ERROR(gatherTensor(state, *items[i].tensor, items[i].kind, bytes.data()));
    TRIREME_RETURN_IF_ERROR(checkFinite(entry, bytes));
    checksums[i] = program::crc32c({bytes.data(), bytes.size()});
    TRIREME_RETURN_IF_ERROR(
        file.write(dataOffset + entry.begin, bytes.data(), static_cast<int64_t>(bytes.size())));
  }
  header.metadata["crc32c"] = formatChecksums(checksums);
  header.metadata[kHeaderChecksum] = headerChecksum(header);
  const std::string text = formatHeader(header);
  TRIREME_RETURN_IF_ERROR(file.write(0, text.data(), static_cast<int64_t>(text.size())));
  return file.sync();
}

// Not negative.
template <typename T>
Result<T> readNumber(const SafetensorsHeader& header, const std::string& key) {
  const auto found = header.metadata.find(key);
  if (found == header.metadata.end())
    return Error(invalidArgument(fmt::format("metadata: {} is missing", key)));
  const std::string& text = found->second;
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0))
    return Error(invalidArgument(fmt::format("metadata: {} is not a number: {}", key, text)));
  return value;
}

Status checkFormat(const SafetensorsHeader& header) {
  if (!isCheckpoint(header))
    return invalidArgument("a safetensors file, but not a Trireme checkpoint");
  TRIREME_ASSIGN_OR_RETURN(const auto version, readNumber<int64_t>(header, "version"));
  if (version > kCheckpointVersion)
    return invalidArgument(fmt::format("written by a newer Trireme: version {}, this one reads {}",
                                       version, kCheckpointVersion));
  if (version < 1)
    return invalidArgument(
        fmt::format("metadata: version is {}, and the first one was 1", version));
  const auto found = header.metadata.find(kHeaderChecksum);
  if (found == header.metadata.end() && version < kVersionWithHeaderChecksum) return {};
  if (found == header.metadata.end() || found->second != headerChecksum(header))
    return invalidArgument("the header is corrupt: its checksum does not match");
  return {};
}

std::string modelOf(const SafetensorsHeader& header) {
  const auto model = header.metadata.find("model");
  return model == header.metadata.end() ? "unknown" : model->second;
}

// The first parameter that is not the same, ": tensor x is [2, 3] in the checkpoint and [2, 4] in
// this run"; empty: all have their shapes.
std::string otherShape(const TrainingState& state, const SafetensorsHeader& header) {
  std::unordered_map<std::string_view, const TensorEntry*> byName;
  for (const TensorEntry& entry : header.tensors) byName[entry.name] = &entry;
  for (const LogicalTensor& tensor : *state.tensors) {
    const auto found = byName.find(tensor.name);
    if (found == byName.end())
      return fmt::format(": this run has a tensor {}, the checkpoint none", tensor.name);
    if (const std::vector<int64_t>& dims = found->second->dims; dims != tensor.dims)
      return fmt::format(": tensor {} is [{}] in the checkpoint and [{}] in this run", tensor.name,
                         fmt::join(dims, ", "), fmt::join(tensor.dims, ", "));
    byName.erase(found);
  }
  for (const TensorEntry& entry : header.tensors)
    if (byName.contains(entry.name) && !entry.name.starts_with(kOptimizerPrefix))
      return fmt::format(": the checkpoint has a tensor {}, this run none", entry.name);
  return "";
}

Status otherModel(const TrainingState& state, const SafetensorsHeader& header) {
  const std::string theirs = modelOf(header), &mine = state.program->model;
  const std::string shape = otherShape(state, header);
  if (theirs != mine)
    return invalidArgument(fmt::format(
        "of another model: {} in the checkpoint and {} in this run{}", theirs, mine, shape));
  if (!shape.empty()) return invalidArgument("of another model" + shape);
  return invalidArgument(fmt::format(
      "of another model: both are called '{}', and something else about them differs", mine));
}

Status checkMetadata(const TrainingState& state, const SafetensorsHeader& header) {
  TRIREME_RETURN_IF_ERROR(checkFormat(header));
  for (const auto& [key, value] : settingsOf(state.program->training)) {
    const auto found = header.metadata.find(key);
    if (found == header.metadata.end())
      return invalidArgument(fmt::format("metadata: {} is missing", key));
    if (found->second != value && key == kFingerprint) return otherModel(state, header);
    if (found->second != value)
      return invalidArgument(
          fmt::format("{} is {} in the checkpoint and {} in this run", key, found->second, value));
  }
  return {};
}

// Files of before do not say them.
std::vector<std::string> changesFrom(const SafetensorsHeader& header,
                                     const program::Training& training) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : freeSettingsOf(training))
    if (const auto found = header.metadata.find(key);
        found != header.metadata.end() && found->second != value)
      changes.push_back(fmt::format("{} {} instead of {}", key, value, found->second));
  return changes;
}

// The file's tensors in the order of `items`; also refuses any other.
Result<std::vector<const TensorEntry*>> match(const TrainingState& state,
                                              const std::vector<Item>& items,
                                              const SafetensorsHeader& header) {
  std::unordered_map<std::string_view, const TensorEntry*> byName;
  for (const TensorEntry& entry : header.tensors) byName[entry.name] = &entry;
  std::vector<const TensorEntry*> matched;
  for (const Item& item : items) {
    const std::string name = nameOf(item);
    const auto found = byName.find(name);
    if (found == byName.end()) return Error(invalidArgument(fmt::format("no tensor {}", name)));
    const TensorEntry& entry = *found->second;
    if (entry.dims != item.tensor->dims)
      return Error(invalidArgument(fmt::format("tensor {} is [{}], not [{}]", name,
                                               fmt::join(entry.dims, ", "),
                                               fmt::join(item.tensor->dims, ", "))));
    const DType wanted = storedType(state, item.kind);
    if (!entry.otherType.empty())
      return Error(invalidArgument(
          fmt::format("tensor {} is {}, not {}", name, entry.otherType, dtypeName(wanted))));
    if (entry.dtype != wanted)
      return Error(invalidArgument(
          fmt::format("tensor {} is {}, not {}", name, dtypeName(entry.dtype), dtypeName(wanted))));
    matched.push_back(&entry);
    byName.erase(found);
  }
  if (!byName.empty())
    return Error(
        invalidArgument(fmt::format("tensor {} is not of this model", byName.begin()->first)));
  return matched;
}

Status readTensor(const InputFile& file, const SafetensorsHeader& header, const TensorEntry& entry,
                  std::vector<char>& bytes) {
  bytes.resize(static_cast<size_t>(entry.end - entry.begin));
  return file.read(header.dataOffset + entry.begin, bytes.data(),
                   static_cast<int64_t>(bytes.size()));
}

Status checkChecksums(const InputFile& file, const SafetensorsHeader& header) {
  const auto found = header.metadata.find("crc32c");
  if (found == header.metadata.end()) return invalidArgument("metadata: crc32c is missing");
  std::vector<uint32_t> checksums;
  std::vector<char> bytes;
  for (const TensorEntry& entry : header.tensors) {
    TRIREME_RETURN_IF_ERROR(readTensor(file, header, entry, bytes));
    checksums.push_back(program::crc32c({bytes.data(), bytes.size()}));
    const std::string sum = fmt::format("{:08x}", checksums.back());
    const size_t at = (checksums.size() - 1) * 9;
    if (found->second.size() < at + 8 || found->second.compare(at, 8, sum) != 0)
      return invalidArgument(fmt::format("tensor {} is corrupt", entry.name));
  }
  return {};
}

// Of a file without: all its steps were taken.
Result<program::LossScaling> readLossScaling(const program::Training& training,
                                             const SafetensorsHeader& header, int64_t stepsDone) {
  program::LossScaling scaling;
  scaling.scale = training.initialLossScale;
  scaling.takenSteps = static_cast<double>(stepsDone);
  if (!training.scalesLoss() || !header.metadata.contains(kScalingFields[0].key)) return scaling;
  for (const ScalingField& field : kScalingFields) {
    TRIREME_ASSIGN_OR_RETURN(scaling.*field.member, readNumber<double>(header, field.key));
  }
  if (std::isfinite(scaling.scale) && scaling.scale > 0 &&
      scaling.takenSteps + scaling.skippedSteps == static_cast<double>(stepsDone) &&
      scaling.goodSteps <= scaling.takenSteps)
    return scaling;
  return Error(invalidArgument(fmt::format(
      "metadata: loss_scale {}, good_steps {}, taken_steps {} and skipped_steps {} are "
      "not those of {} steps",
      scaling.scale, scaling.goodSteps, scaling.takenSteps, scaling.skippedSteps, stepsDone)));
}

Result<TrainedSoFar> loadFile(const TrainingState& state, const InputFile& file) {
  TRIREME_ASSIGN_OR_RETURN(const SafetensorsHeader header, readHeader(file));
  TRIREME_RETURN_IF_ERROR(checkMetadata(state, header));
  TRIREME_ASSIGN_OR_RETURN(const auto stepsDone, readNumber<int64_t>(header, "step"));
  TRIREME_ASSIGN_OR_RETURN(const auto nextSample, readNumber<int64_t>(header, "next_sample"));
  const int64_t batch = state.program->training.globalBatchSize;
  if (nextSample / batch != stepsDone || nextSample % batch != 0)
    return Error(invalidArgument("metadata: step and next_sample disagree"));
  TRIREME_ASSIGN_OR_RETURN(const program::LossScaling lossScaling,
                           readLossScaling(state.program->training, header, stepsDone));
  const std::vector<Item> items = itemsOf(state);
  TRIREME_ASSIGN_OR_RETURN(const std::vector<const TensorEntry*> entries,
                           match(state, items, header));
  TRIREME_RETURN_IF_ERROR(checkChecksums(file, header));
  std::vector<char> bytes;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Status status = readTensor(file, header, *entries[i], bytes); !status.ok())
      return Error(unavailable("the weights are undefined now: " + status.message()));
    scatterTensor(state, *items[i].tensor, items[i].kind, bytes.data());
  }
  const auto data = header.metadata.find(kData);
  return TrainedSoFar{stepsDone, data == header.metadata.end() ? std::string() : data->second,
                      lossScaling, changesFrom(header, state.program->training)};
}

}  // namespace

Status saveCheckpoint(const TrainingState& state, const TrainedSoFar& progress,
                      const std::string& path, FileSystem& files) {
  const Status status =
      replaceFile(path, files, [&](OutputFile& file) { return writeAll(state, progress, file); });
  if (status.ok()) return {};
  return status.withContext("checkpoint not written, what was there before is untouched");
}

Status contributeToCheckpoint(const TrainingState& state) {
  for (const Item& item : itemsOf(state))
    TRIREME_RETURN_IF_ERROR(gatherTensor(state, *item.tensor, item.kind, nullptr));
  return {};
}

bool isCheckpoint(const SafetensorsHeader& header) {
  const auto format = header.metadata.find("format");
  return format != header.metadata.end() && format->second == kFormat;
}

Status checkFile(const InputFile& file, const SafetensorsHeader& header,
                 uint64_t modelFingerprint) {
  TRIREME_RETURN_IF_ERROR(checkFormat(header));
  const auto found = header.metadata.find(kFingerprint);
  if (found == header.metadata.end())
    return invalidArgument("metadata: model_fingerprint is missing");
  if (found->second != std::to_string(modelFingerprint))
    return invalidArgument(
        fmt::format("the checkpoint is of another model, named {}", modelOf(header)));
  return checkChecksums(file, header);
}

std::string describeCheckpoint(const std::string& path, FileSystem& files) {
  const auto describe = [&]() -> Result<std::string> {
    TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files.open(path));
    TRIREME_ASSIGN_OR_RETURN(const SafetensorsHeader header, readHeader(*file));
    TRIREME_ASSIGN_OR_RETURN(const uint32_t fingerprint, fingerprintOf(*file, header));
    TRIREME_ASSIGN_OR_RETURN(const auto steps, readNumber<int64_t>(header, "step"));
    return fmt::format("a checkpoint of step {}, fingerprint {:08x}", steps, fingerprint);
  };
  const Result<std::string> known = describe();
  return known.has_value() ? *known : fmt::format("unreadable ({})", known.error().message());
}

Result<TrainedSoFar> loadCheckpoint(const TrainingState& state, const std::string& path,
                                    FileSystem& files) {
  TRIREME_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files.open(path));
  Result<TrainedSoFar> progress = loadFile(state, *file);
  if (!progress.has_value()) return Error(progress.error().withContext("checkpoint " + path));
  return progress;
}

}  // namespace trireme::runtime
