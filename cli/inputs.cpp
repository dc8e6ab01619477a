#include "cli/inputs.h"

#include <fmt/format.h>

#include <cstdio>

#include "ir/spec/load.h"

namespace trireme::cli {
namespace {

// Says which dropout of a Hugging Face config.json the training settings leave out.
Status noteDropout(const QueryOptions& options, const spec::TrainingSpec& training) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<spec::ForeignDropout> dropouts,
                           spec::loadForeignDropout(options.model));
  for (const spec::ForeignDropout& dropout : dropouts) {
    const double used = dropout.key == "embedding_dropout"   ? training.embeddingDropout
                        : dropout.key == "attention_dropout" ? training.attentionDropout
                                                             : training.residualDropout;
    if (dropout.probability == used) continue;
    fmt::print(stderr, "note: {}: {} {} is not used; {} of the --train file counts, and is {}\n",
               options.model, dropout.option, dropout.probability, dropout.key, used);
  }
  return {};
}

}  // namespace

Result<spec::StackProfile> loadStackOrDefault(const std::string& path) {
  if (path.empty()) return spec::StackProfile{};
  return spec::loadStack(path);
}

Result<planner::Query> makeQuery(const QueryOptions& options,
                                 std::optional<spec::StackProfile> stack) {
  planner::Query query;
  TRIREME_ASSIGN_OR_RETURN(query.model, spec::loadModel(options.model));
  TRIREME_ASSIGN_OR_RETURN(query.cluster, spec::loadCluster(options.cluster));
  if (!options.training.empty()) {
    TRIREME_ASSIGN_OR_RETURN(query.training, spec::loadTraining(options.training));
  }
  if (stack) {
    query.stack = *std::move(stack);
  } else {
    TRIREME_ASSIGN_OR_RETURN(query.stack, loadStackOrDefault(options.stack));
  }
  if (options.training.empty())
    query.training.precision = spec::usualPrecision(query.stack, query.cluster.device);
  TRIREME_RETURN_IF_ERROR(noteDropout(options, query.training));
  query.training.globalBatchSize = options.batch.value_or(query.training.globalBatchSize);
  query.training.sequenceLength = options.sequence.value_or(query.training.sequenceLength);
  query.training.precision = options.precision.value_or(query.training.precision);
  if (query.training.globalBatchSize == 0)
    return Error(invalidArgument(
        "the batch size is missing: give --batch, or global_batch_size in the --train file"));
  if (query.training.sequenceLength == 0)
    return Error(invalidArgument(
        fmt::format("the sequence length is missing: give --seq (model '{}' takes up to {}), or "
                    "sequence_length in the --train file",
                    query.model.name, query.model.maxSequence)));
  query.vocabMultiple = options.vocabMultiple;
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
  Result<spec::ClusterSpec> grown = spec::withNumDevices(cluster, wanted);
  if (!grown.has_value()) return grown.error().withContext("--gpus");
  cluster = *std::move(grown);
  return {};
}

}  // namespace trireme::cli
