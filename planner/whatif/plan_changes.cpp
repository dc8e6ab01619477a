#include "planner/plan_text.h"
#include "planner/whatif/change_lines.h"
#include "planner/whatif/changes.h"

namespace trireme::planner {
namespace {

using plan::Plan;
using spec::TrainingSpec;

template <typename Owner, typename T>
struct Choice {
  std::string_view key;  // of plan files
  T Owner::* member;
};

constexpr Choice<Plan, int64_t> kNumbers[] = {{"tp", &Plan::tp},
                                              {"pp", &Plan::pp},
                                              {"cp", &Plan::cp},
                                              {"ep", &Plan::ep},
                                              {"dp_replicate", &Plan::dpReplicate},
                                              {"dp_shard", &Plan::dpShard},
                                              {"virtual_stages", &Plan::virtualStages},
                                              {"microbatch_size", &Plan::microbatchSize},
                                              {"recompute_layers", &Plan::recomputeLayers},
                                              {"vocab_multiple", &Plan::vocabMultiple}};
constexpr Choice<Plan, bool> kSwitches[] = {{"sequence_parallel", &Plan::sequenceParallel},
                                            {"scatter_gather", &Plan::scatterGather},
                                            {"overlap_reductions", &Plan::overlapReductions}};
constexpr Choice<TrainingSpec, double> kDropouts[] = {
    {"embedding_dropout", &TrainingSpec::embeddingDropout},
    {"attention_dropout", &TrainingSpec::attentionDropout},
    {"residual_dropout", &TrainingSpec::residualDropout}};

template <typename Choices, typename Owner>
void addChoices(ChangeLines& lines, const Choices& choices, const Owner& before,
                const Owner& after) {
  for (const auto& choice : choices)
    lines.add(choice.key, before.*choice.member, after.*choice.member);
}

}  // namespace

std::vector<std::string> planChanges(const Plan& before, const Plan& after) {
  ChangeLines lines;
  addChoices(lines, kNumbers, before, after);
  lines.add("schedule", plan::scheduleName(before.schedule), plan::scheduleName(after.schedule));
  lines.add("recompute", plan::recomputeName(before.recompute),
            plan::recomputeName(after.recompute));
  lines.add("state_sharding", plan::stateShardingName(before.stateSharding),
            plan::stateShardingName(after.stateSharding));
  addChoices(lines, kSwitches, before, after);
  lines.add("rank_order", plan::rankOrderName(before.rankOrder),
            plan::rankOrderName(after.rankOrder));
  lines.add("layers", layersText(before), layersText(after));
  addChoices(lines, kDropouts, before.training, after.training);
  return lines.take();
}

}  // namespace trireme::planner
