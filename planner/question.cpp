#include "planner/question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "ir/base/format.h"
#include "ir/plan/choices.h"
#include "ir/program/gpu_memory.h"
#include "ir/program/target.h"
#include "ir/spec/document.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"
#include "ir/spec/shipped.h"

namespace trireme::planner {

spec::StackProfile ownStack() {
  spec::StackProfile stack;
  stack.computeCapability = program::kLeastCapability / 10.0;
  stack.gpuReserve = Bytes(static_cast<double>(program::kContextBytes + program::kLazyBytes));
  stack.ncclConnection = Bytes(static_cast<double>(program::kConnectionBytes));
  return stack;
}

Result<spec::StackProfile> loadStackOrDefault(const std::string& path) {
  if (path.empty()) return ownStack();
  return spec::loadStack(path);
}

Result<std::vector<std::string>> notesOf(const Question& question,
                                         const spec::TrainingSpec& training) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<spec::ForeignDropout> dropouts,
                           spec::loadForeignDropout(question.model));
  std::vector<std::string> notes;
  for (const spec::ForeignDropout& dropout : dropouts) {
    const double used = dropout.key == "embedding_dropout"   ? training.embeddingDropout
                        : dropout.key == "attention_dropout" ? training.attentionDropout
                                                             : training.residualDropout;
    if (dropout.probability == used) continue;
    notes.push_back(fmt::format("{}: {} {} is not used; {} of the --train file counts, and is {}",
                                question.model, dropout.option, dropout.probability, dropout.key,
                                used));
  }
  return notes;
}

namespace {

std::string nearestMultiples(int64_t size, int64_t multiple) {
  const int64_t below = size / multiple * multiple;
  return below > 0 ? fmt::format("{} or {}", below, below + multiple) : fmt::format("{}", multiple);
}

// Operands of 16 bits whose rows do not begin at multiples of 16 bytes.
std::optional<std::string> unalignedNote(const Query& query) {
  constexpr int64_t kAligned = 8;
  const bool isOnGpus = query.cluster.device.kind == spec::DeviceKind::kCuda;
  if (!isOnGpus || byteSize(spec::computeDType(query.training.precision)) != 2) return std::nullopt;
  const int64_t padded =
      (query.model.vocabSize + query.vocabMultiple - 1) / query.vocabMultiple * query.vocabMultiple;
  if (padded % kAligned != 0)
    return fmt::format(
        "a vocabulary of {} is no multiple of {}, and products of it in 16 bits take slower "
        "kernels, which are not priced: GPT-2 124M trained a quarter faster with 50304 instead of "
        "50257 (nanoGPT); nearest: a vocab_size of {} in the model",
        padded, kAligned, (padded + kAligned - 1) / kAligned * kAligned);
  return std::nullopt;
}

}  // namespace

std::vector<std::string> sizeNotesOf(const Query& query) {
  std::vector<std::string> notes;
  const spec::Precision precision = query.training.precision;
  if (auto note = unalignedNote(query)) notes.push_back(*std::move(note));
  if (const auto misfit = plan::fp8Misfit(query.model, precision, 1, query.stack.settings))
    notes.push_back(
        fmt::format("{} of model {} is {}, of which fp8 products need a multiple of {}; "
                    "nearest: {}",
                    misfit->what, query.model.name, misfit->size, misfit->multiple,
                    nearestMultiples(misfit->size, misfit->multiple)));
  const int64_t sequence = query.training.sequenceLength, rows = query.stack.settings.fp8Rows;
  if (!plan::hasFp8Tokens(sequence, precision, query.stack.settings))
    notes.push_back(fmt::format(
        "fp8 products need a multiple of {} tokens on a rank, which of sequences of {} only "
        "microbatches of {} samples, or multiples, have; nearest: sequences of {}",
        rows, sequence, rows / std::gcd(rows, sequence), nearestMultiples(sequence, rows)));
  return notes;
}

// "; runs of nemo were", of shipped stacks; empty: of none.
static std::string othersComparedOn(const std::string& device) {
  std::vector<std::string> names;
  if (const auto stacks = shippedStacks(); stacks.has_value())
    for (const spec::StackProfile& other : *stacks)
      if (!other.description.comparedOn.empty() && other.description.isComparedOn(device))
        names.push_back(other.name);
  return names.empty() ? "" : fmt::format("; runs of {} were", fmt::join(names, ", "));
}

std::vector<std::string> caveatsOf(const spec::StackProfile& stack,
                                   const spec::DeviceSpec& device) {
  std::vector<std::string> caveats;
  const spec::StackDescription& runs = stack.description;
  if (device.kind == spec::DeviceKind::kCuda && runs.fasterRuns == 0 && runs.slowerRuns == 0)
    caveats.push_back(
        fmt::format("stack {}: no, or too few, runs on GPUs were compared with its predictions, so "
                    "that they have no "
                    "interval; other stacks' have one (--stack)",
                    stack.name));
  else if (device.kind == spec::DeviceKind::kCuda && !runs.isComparedOn(device.name))
    caveats.push_back(
        fmt::format("stack {}: no run on this GPU was compared with its predictions, only on {}{}",
                    stack.name, fmt::join(runs.comparedOn, ", "), othersComparedOn(device.name)));
  if (!stack.caution.empty())
    caveats.push_back(fmt::format("stack {}: {}", stack.name, stack.caution));
  if (!device.caution.empty())
    caveats.push_back(fmt::format("device {}: {}", device.name, device.caution));
  return caveats;
}

Result<spec::TrainingSpec> trainingOf(const Question& question, const spec::StackProfile& stack,
                                      const spec::DeviceSpec& device) {
  spec::TrainingSpec training;
  training.precision = spec::usualPrecision(stack, device);
  if (!question.training.empty()) {
    TRIREME_ASSIGN_OR_RETURN(training, spec::loadTraining(question.training, training.precision));
  }
  training.globalBatchSize = question.batch.value_or(training.globalBatchSize);
  training.sequenceLength = question.sequence.value_or(training.sequenceLength);
  training.precision = question.precision.value_or(training.precision);
  return training;
}

namespace {

// On the command line or in the training file.
Result<bool> asksPrecision(const Question& question) {
  if (question.precision || question.training.empty()) return question.precision.has_value();
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(question.training));
  TRIREME_ASSIGN_OR_RETURN(const spec::Node root, spec::parseDocument(text, question.training));
  return root.find("precision") != nullptr;
}

}  // namespace

Result<Query> makeQuery(const Question& question, std::optional<spec::StackProfile> stack) {
  Query query;
  TRIREME_ASSIGN_OR_RETURN(query.model, spec::loadModel(question.model));
  TRIREME_ASSIGN_OR_RETURN(query.cluster, spec::loadCluster(question.cluster));
  if (stack) {
    query.stack = *std::move(stack);
  } else {
    TRIREME_ASSIGN_OR_RETURN(query.stack, loadStackOrDefault(question.stack));
  }
  TRIREME_ASSIGN_OR_RETURN(query.training, trainingOf(question, query.stack, query.cluster.device));
  TRIREME_ASSIGN_OR_RETURN(const bool isAsked, asksPrecision(question));
  query.usualPrecision = !isAsked;
  if (query.training.globalBatchSize == 0)
    return Error(invalidArgument(
        "the batch size is missing: give --batch, or global_batch_size in the --train file"));
  if (query.training.sequenceLength == 0)
    return Error(invalidArgument(
        fmt::format("the sequence length is missing: give --seq (model '{}' takes up to {}), or "
                    "sequence_length in the --train file",
                    query.model.name, query.model.maxSequence)));
  query.usualVocabMultiple = !question.vocabMultiple;
  query.vocabMultiple = question.vocabMultiple.value_or(query.stack.vocabMultiple);
  return query;
}

Status growCluster(std::optional<int64_t> gpus, const std::string& path,
                   spec::ClusterSpec& cluster) {
  const int64_t wanted = gpus.value_or(0);
  if (wanted <= cluster.numDevices) return {};
  if (!cluster.scalable)
    return invalidArgument(fmt::format(
        "--gpus {}: cluster '{}' has {} devices; nearest: {}; if there are more, raise num_devices "
        "in {}, or set 'scalable: true' there if it may have any number",
        wanted, cluster.name, cluster.numDevices, cluster.numDevices, path));
  Result<spec::ClusterSpec> grown = spec::withRoomFor(cluster, wanted);
  if (!grown.has_value()) return grown.error().withContext("--gpus");
  cluster = *std::move(grown);
  return {};
}

Status keepFree(std::string_view headroom, spec::DeviceSpec& device) {
  constexpr const char* kExpected =
      "expected a share of the memory, such as 7%, or bytes, such as 5 GiB";
  Bytes free;
  if (const size_t digits = headroom.find('%'); digits != std::string_view::npos) {
    double percent = 0;
    const char* const end = headroom.data() + digits;
    const auto [rest, error] = std::from_chars(headroom.data(), end, percent);
    const bool isGood =
        error == std::errc() && std::all_of(rest, end, [](char c) { return c == ' '; });
    if (!isGood || digits + 1 != headroom.size())
      return invalidArgument(
          fmt::format("--headroom {}: {}", spec::quoteForMessage(headroom), kExpected));
    free = device.memory * (percent / 100);
  } else {
    Result<Bytes> bytes = spec::parseBytes(headroom);
    if (!bytes.has_value())
      return invalidArgument(
          fmt::format("--headroom {}: {}", spec::quoteForMessage(headroom), kExpected));
    free = *bytes;
  }
  if (!(free >= Bytes(0)) || !(free < device.memory))
    return invalidArgument(
        fmt::format("--headroom {}: of the {} of {}; expected 0 or more, and less "
                    "than all, such as 7%",
                    spec::quoteForMessage(headroom), formatBytes(device.memory), device.name));
  device.memory = device.memory - free;
  device.headroom = free;
  return {};
}

Result<std::vector<spec::StackProfile>> shippedStacks() {
  std::vector<spec::StackProfile> stacks;
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kStack)) {
    TRIREME_ASSIGN_OR_RETURN(spec::StackProfile stack, spec::loadStack(name));
    stacks.push_back(std::move(stack));
  }
  return stacks;
}

}  // namespace trireme::planner
