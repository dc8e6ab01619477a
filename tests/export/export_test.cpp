// Golden files of every exporter for plans that the planner made, and properties over many small
// plans. The plans are in plans/, the expected text in golden/, the options that the projects
// document in options/. TRIREME_UPDATE_GOLDEN=1 writes the golden files anew.
#include "codegen/export/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "codegen/export/formats.h"
#include "tests/export/plans.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using ::testing::HasSubstr;
using ::testing::Not;

std::string readAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Case {
  std::string plan, golden;
  Framework framework;
  Launcher launcher = Launcher::kTorchrun;
};

const Case kCases[] = {
    {"gpt3-175b-1024xa100", "gpt3.megatron.sh", Framework::kMegatron},
    {"llama3-70b-256xh100", "llama3.megatron.sh", Framework::kMegatron},
    {"gpt2-124m-uneven", "gpt2.megatron.sh", Framework::kMegatron},
    {"llama3-70b-256xh100", "llama3.nemo.sh", Framework::kNemo},
    {"gpt3-175b-1024xa100", "gpt3.nemo.sh", Framework::kNemo},
    {"llama3-70b-titan", "llama3.torchtitan.toml", Framework::kTorchtitan},
    {"llama3-70b-titan-pipeline", "llama3-pipeline.torchtitan.toml", Framework::kTorchtitan},
    {"gpt2-1.5b-64xa100", "gpt2.deepspeed.json", Framework::kDeepspeed},
    {"llama2-7b-64xa100", "llama2.accelerate.yaml", Framework::kAccelerate},
    {"gpt3-175b-1024xa100", "gpt3.slurm.sh", Framework::kMegatron, Launcher::kSlurm},
    {"llama3-70b-titan", "llama3.slurm.sh", Framework::kTorchtitan, Launcher::kSlurm},
    {"llama2-7b-64xa100", "llama2.mpirun.sh", Framework::kAccelerate, Launcher::kMpirun},
    {"gpt3-175b-1024xa100", "gpt3.mpirun.sh", Framework::kMegatron, Launcher::kMpirun}};

TEST(Export, PlansOfThePlannerGiveTheGoldenFiles) {
  for (const Case& c : kCases) {
    const Plan plan = loadPlan(c.plan);
    const spec::ModelSpec model = loadModel(plan);
    ASSERT_TRUE(plan::verifyPlan(plan, model).ok()) << c.plan;
    const Result<Exported> exported = exportPlan(plan, model, c.framework);
    ASSERT_TRUE(exported.has_value()) << c.golden << ": " << exported.error().message();
    const std::string text = printExport(*exported, plan, c.framework, c.launcher);
    const std::string path = kFolder + "golden/" + c.golden;
    if (std::getenv("TRIREME_UPDATE_GOLDEN")) std::ofstream(path) << text;
    EXPECT_EQ(text, readAll(path)) << path;
  }
}

// The file of documented options, without comments.
std::set<std::string> documented(Framework framework) {
  std::set<std::string> options;
  std::istringstream lines(
      readAll(fmt::format("{}options/{}.txt", kFolder, frameworkName(framework))));
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#") && !line.empty()) options.insert(line);
  EXPECT_GT(options.size(), 20u) << frameworkName(framework);
  return options;
}

void addKeys(const nlohmann::json& json, const std::string& path, std::set<std::string>& keys) {
  for (const auto& [key, value] : json.items())
    if (value.is_object())
      addKeys(value, path + key + ".", keys);
    else
      keys.insert(path + key);
}

// The options that an exported text uses: of flags and overrides the words before a value, of
// sections and YAML the keys with the section before them.
std::set<std::string> optionsIn(const Exported& exported, Framework framework) {
  std::set<std::string> options;
  if (framework == Framework::kDeepspeed) {
    addKeys(nlohmann::json::parse(exported.text), "", options);
    return options;
  }
  static const std::regex kSection("\\[([a-z_0-9.]+)\\]|([a-z_]+):");
  static const std::regex kTop("^'?((--)?[a-z][a-z0-9_.-]*)([ =:]|$)");
  static const std::regex kNested("^  ([a-z_]+):");
  std::istringstream lines(exported.text);
  std::string section;
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, match, kSection))
      section = (match[1].matched ? match[1].str() : match[2].str()) + ".";
    else if (std::regex_search(line, match, kTop))
      options.insert((framework == Framework::kTorchtitan ? section : "") + match[1].str());
    else if (std::regex_search(line, match, kNested))
      options.insert(section + match[1].str());
  }
  return options;
}

// Every 5th combination of degrees, schedule, sharding, recomputation and flags, if it is legal.
std::vector<Plan> sample(const spec::ModelSpec& model) {
  std::vector<Plan> plans;
  int combination = 0;
  for (int64_t tp : {1, 2})
    for (int64_t pp : {1, 2, 3})
      for (int64_t cp : {1, 2})
        for (int64_t dp : {1, 4})
          for (const auto schedule : {plan::ScheduleKind::kGpipe, plan::ScheduleKind::k1F1B,
                                      plan::ScheduleKind::kInterleaved})
            for (int sharding = 0; sharding <= 3; ++sharding)
              for (int recompute = 0; recompute <= 3; ++recompute)
                for (int flags = 0; flags < 8; ++flags) {
                  if (++combination % 5 != 0) continue;
                  Plan p = small::plan(model, small::training(48, model.maxSequence), tp, pp, dp);
                  p.cp = cp;
                  if (schedule == plan::ScheduleKind::kInterleaved)
                    p = small::interleaved(p, model, 2);
                  p.schedule = schedule;
                  p.stateSharding = static_cast<plan::StateSharding>(sharding);
                  if (sharding > 0) p.dpReplicate = (flags & 4) ? 2 : 1;
                  if (sharding > 0) p.dpShard = dp / std::min(p.dpReplicate, dp);
                  p.recompute = static_cast<plan::Recompute>(std::min(recompute, 2));
                  p.recomputeLayers = recompute == 3 ? 1 : 0;
                  p.sequenceParallel = flags & 1;
                  p.scatterGather = flags & 2;
                  if ((flags & 4) && pp > 1 && dp > 1) p.rankOrder = plan::RankOrder::kTpCpPpDp;
                  if (plan::verifyPlan(p, model).ok()) plans.push_back(p);
                }
  return plans;
}

spec::ModelSpec scaled(spec::ModelSpec model, const RopeScaling& scaling) {
  model.ropeScaling = scaling;
  return model;
}
const RopeScaling kDivided{.kind = RopeScalingKind::kLinear, .factor = 4};

TEST(Export, EveryPlanIsExportedOrRefusedByTheChoiceThatIsInTheWay) {
  size_t exports = 0, refusals = 0;
  for (const spec::ModelSpec& model :
       {small::gpt(12), small::asLlama(small::gpt(12)), flavored()}) {
    const std::vector<Plan> plans = sample(model);
    EXPECT_GT(plans.size(), 100u);
    for (const Plan& plan : plans)
      for (const Framework framework : kFrameworks) {
        const Result<Exported> exported = exportPlan(plan, model, framework);
        if (exported.has_value()) {
          ++exports;
          continue;
        }
        ++refusals;
        EXPECT_EQ(exported.error().code(), StatusCode::kInvalidArgument);
        EXPECT_THAT(exported.error().message(),
                    ::testing::ContainsRegex("cannot express .+ \\(nearest: .+\\)"));
      }
  }
  EXPECT_GT(exports, 300u);
  EXPECT_GT(refusals, 300u);
}

TEST(Export, OnlyDocumentedOptionsAreUsed) {
  for (const Framework framework : kFrameworks) {
    const std::set<std::string> known = documented(framework);
    std::set<std::string> used;
    for (spec::ModelSpec model :
         {small::gpt(12), small::asLlama(small::gpt(12)), flavored(),
          scaled(small::asLlama(small::gpt(12)), kLlama31Scaling), scaled(flavored(), kDivided)}) {
      if (model.family == spec::ModelFamily::kLlama && model.numHeads == 4) {
        model.qkvBias = true;
        model.numKvHeads = 2;
        model.headSize = 8;
      }
      const std::vector<Plan> plans = sample(model);
      for (size_t i = 0; i < plans.size(); i += 3) {
        Plan plan = plans[i];
        for (const spec::Precision precision : infoOf(framework).precisions) {
          plan.training.precision = precision;
          plan.training.warmupSteps = 10;
          plan.training.decaySteps = plan.tp == 1 ? 90 : 0;
          if (const Result<Exported> exported = exportPlan(plan, model, framework);
              exported.has_value())
            used.merge(optionsIn(*exported, framework));
        }
      }
    }
    EXPECT_GT(used.size(), 10u);
    for (const std::string& option : used)
      EXPECT_TRUE(known.contains(option)) << frameworkName(framework) << ": " << option;
  }
}

std::string megatronText(const Plan& plan, const spec::ModelSpec& model) {
  const Result<Exported> exported = exportPlan(plan, model, Framework::kMegatron);
  EXPECT_TRUE(exported.has_value()) << exported.error().message();
  return exported->text;
}

TEST(RopeScaling, IsWrittenWhereTheTargetHasIt) {
  const spec::ModelSpec plain = flavored(), llama31 = scaled(plain, kLlama31Scaling),
                        divided = scaled(plain, kDivided);
  const Plan plan = small::plan(plain, small::training());
  const auto text = [&](const spec::ModelSpec& model, Framework framework) {
    const Result<Exported> exported = exportPlan(plan, model, framework);
    return exported.has_value() ? exported->text : exported.error().message();
  };
  EXPECT_THAT(text(plain, Framework::kMegatron), Not(::testing::ContainsRegex("scaling|interpol")));
  EXPECT_THAT(text(llama31, Framework::kMegatron),
              HasSubstr("--use-rope-scaling\n--rope-scaling-factor 8\n"));
  EXPECT_THAT(text(divided, Framework::kMegatron),
              HasSubstr("--rotary-seq-len-interpolation-factor 4\n"));
  EXPECT_THAT(text(divided, Framework::kNemo), HasSubstr("model.seq_len_interpolation_factor=4\n"));
  EXPECT_THAT(text(plain, Framework::kNemo), Not(::testing::ContainsRegex("scaling|interpol")));
  // GPTModelProvider's own factor is 1, so that it is always said.
  EXPECT_THAT(text(llama31, Framework::kNemo),
              HasSubstr("model.rope_scaling=true\nmodel.rope_scaling_factor=8\n"));

  // Megatron has Llama 3.1's numbers and another factor, and divides by whole numbers.
  RopeScaling other = kLlama31Scaling;
  other.factor = 32;
  EXPECT_THAT(text(scaled(plain, other), Framework::kMegatron),
              HasSubstr("--rope-scaling-factor 32\n"));
  EXPECT_THAT(text(scaled(plain, other), Framework::kNemo),
              HasSubstr("model.rope_scaling_factor=32\n"));
  other.highFreqFactor = 3;
  for (const Framework framework : {Framework::kMegatron, Framework::kNemo}) {
    EXPECT_THAT(text(scaled(plain, other), framework),
                HasSubstr("high_freq_factor: 3, original_max_position_embeddings: 8192} (nearest: "
                          "{type: llama3, factor: 32, low_freq_factor: 1, high_freq_factor: 4, "));
    EXPECT_THAT(text(scaled(plain, {RopeScalingKind::kLinear, 2.5}), framework),
                HasSubstr("rope_scaling {type: linear, factor: 2.5} (nearest: a factor of 2)"));
  }
}

// Older Megatron-LM parses the flags and scales by 8, or not at all.
TEST(RopeScaling, ThatOlderMegatronIgnoresIsNoted) {
  const spec::ModelSpec plain = flavored();
  const Plan plan = small::plan(plain, small::training());
  const auto notes = [&](const RopeScaling& scaling, Framework framework) {
    const Result<Exported> exported = exportPlan(plan, scaled(plain, scaling), framework);
    return fmt::format("{}", fmt::join(exported.value().notes, "\n"));
  };
  RopeScaling llama32 = kLlama31Scaling;
  llama32.factor = 32;
  EXPECT_THAT(notes(llama32, Framework::kMegatron),
              HasSubstr("ignores --rope-scaling-factor and scales by 8"));
  EXPECT_THAT(notes(kDivided, Framework::kMegatron),
              HasSubstr("ignores --rotary-seq-len-interpolation-factor"));
  for (const RopeScaling& scaling : {RopeScaling{}, kLlama31Scaling})
    EXPECT_THAT(notes(scaling, Framework::kMegatron), Not(HasSubstr("ignores")));
  for (const RopeScaling& scaling : {llama32, kDivided})
    EXPECT_THAT(notes(scaling, Framework::kNemo), Not(HasSubstr("ignores")));
}

TEST(RopeScaling, OfShippedModelsIsWhatMegatronHas) {
  for (const char* name : {"llama3.1-8b", "llama3-405b"})
    for (const Framework framework : {Framework::kMegatron, Framework::kNemo})
      EXPECT_TRUE(misfitsOf(spec::loadModel(name).value(), small::training(), framework).empty())
          << name;
}

// Bridge has no number of positions: learned ones are as many as a sequence is long.
TEST(Nemo, LearnedPositionsAreThoseOfTheSequence) {
  const spec::ModelSpec gpt = small::gpt(4);
  const auto text = [](const spec::ModelSpec& model, int64_t sequence) {
    const Result<Exported> exported =
        exportPlan(small::plan(model, small::training(16, sequence)), model, Framework::kNemo);
    return exported.has_value() ? exported->text : exported.error().message();
  };
  EXPECT_THAT(text(gpt, gpt.maxSequence),
              AllOf(HasSubstr(fmt::format("model.seq_length={}\n", gpt.maxSequence)),
                    Not(HasSubstr("max_position"))));
  EXPECT_EQ(text(gpt, gpt.maxSequence / 2),
            fmt::format("Megatron-Bridge cannot express {0} learned positions with sequences of "
                        "{1} (nearest: sequences of {0})",
                        gpt.maxSequence, gpt.maxSequence / 2));
  EXPECT_THAT(text(flavored(), 32), HasSubstr("model.seq_length=32\n"));
}

// Every Llama 3 of torchtitan is scaled as Llama 3.1.
TEST(RopeScaling, OfTorchtitanIsThatOfLlama31) {
  const auto notesOf = [](const spec::ModelSpec& model) {
    const Result<Exported> exported =
        exportPlan(loadPlan("llama3-70b-titan"), model, Framework::kTorchtitan);
    return exported.has_value() ? fmt::format("{}", fmt::join(exported->notes, "\n"))
                                : exported.error().message();
  };
  const spec::ModelSpec plain = spec::loadModel("llama3-70b").value();
  EXPECT_THAT(notesOf(plain), HasSubstr("the plan's model has no rope_scaling"));
  EXPECT_THAT(notesOf(scaled(plain, kLlama31Scaling)), Not(HasSubstr("rope_scaling")));
  EXPECT_THAT(notesOf(scaled(plain, kDivided)),
              HasSubstr("torchtitan cannot express model llama3-70b, which it does not define"));
  EXPECT_EQ(torchtitanFlavor(spec::loadModel("llama3-405b").value()), "405B");
}

// 7 layers on 2 stages x 2 chunks are 2, 2, 2 and 1: uneven, so the layout says it, in the order of
// virtual stages. 8 layers are 2 each, for which the number of virtual stages is enough.
TEST(Megatron, UnevenVirtualStagesAreALayout) {
  const spec::ModelSpec seven = small::gpt(7), eight = small::gpt(8);
  const auto text = [](const spec::ModelSpec& model) {
    return megatronText(small::interleaved(small::plan(model, small::training(), 1, 2), model, 2),
                        model);
  };
  EXPECT_THAT(text(seven), HasSubstr("--pipeline-model-parallel-layout 'Ett|tt|tt|tL'\n"));
  EXPECT_THAT(text(seven), Not(HasSubstr("--num-virtual-stages")));
  EXPECT_THAT(text(eight), HasSubstr("--num-virtual-stages-per-pipeline-rank 2\n"));
  EXPECT_THAT(text(eight), Not(HasSubstr("layout")));
}

// 28672 / 8 is 3584 wide, a multiple of 32, and a pass has 8192 tokens of a multiple of 8.
TEST(Fp8, ProductsHaveTheSizesOfTheProfile) {
  Plan plan = loadPlan("llama3-70b-titan");
  const spec::ModelSpec model = loadModel(plan);
  plan.training.precision = spec::Precision::kFp8;
  const auto text = [&](int64_t multiple) {
    const auto exported = exportPlan(
        plan, model, Framework::kMegatron,
        {.settings = {.fp8 = spec::Fp8Recipe::kMx, .fp8Rows = 8, .fp8Columns = multiple}});
    return exported.has_value() ? exported->text : exported.error().message();
  };
  EXPECT_THAT(text(32), HasSubstr("--fp8-recipe mxfp8\n"));
  EXPECT_THAT(text(1000), HasSubstr("Megatron-LM cannot express fp8 products of hidden size 8192 "
                                    "at tp "));
}

// Each recipe by the framework's own name for it; one that it has not is refused.
TEST(Fp8, TheRecipeOfTheProfileIsAskedFor) {
  Plan plan = loadPlan("llama3-70b-titan");
  const spec::ModelSpec model = loadModel(plan);
  plan.training.precision = spec::Precision::kFp8;
  const auto text = [&](Framework framework, spec::Fp8Recipe recipe) {
    const auto exported = exportPlan(plan, model, framework, {.settings = {.fp8 = recipe}});
    return exported.has_value() ? exported->text : exported.error().message();
  };
  using spec::Fp8Recipe;
  EXPECT_THAT(text(Framework::kTorchtitan, Fp8Recipe::kRowwise),
              HasSubstr("converters = [\"quantize.linear.float8\"]\n\n[quantize.linear.float8]\n"
                        "recipe_name = \"rowwise\"\n"));
  EXPECT_THAT(text(Framework::kTorchtitan, Fp8Recipe::kCurrent),
              HasSubstr("recipe_name = \"tensorwise\"\n"));
  EXPECT_EQ(text(Framework::kTorchtitan, Fp8Recipe::kDelayed),
            "torchtitan cannot express fp8 with scales by the recipe delayed (nearest: current)");
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kDelayed),
              AllOf(HasSubstr("--fp8-format hybrid\n"), Not(HasSubstr("--fp8-recipe"))));
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kCurrent),
              HasSubstr("--fp8-format hybrid\n--fp8-recipe tensorwise\n"));
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kMx),
              HasSubstr("--fp8-format e4m3\n--fp8-recipe mxfp8\n"));
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kRowwise), HasSubstr("(nearest: delayed)"));
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kDelayed),
              HasSubstr(",grad_reduce_in_fp32:true,fp8:hybrid,fp8_recipe:delayed,"
                        "fp8_amax_history_len:1024,fp8_amax_compute_algo:max}'\n"));
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kCurrent),
              HasSubstr(",grad_reduce_in_fp32:true,fp8:hybrid,fp8_recipe:tensorwise}'\n"));
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kMx),
              HasSubstr(",grad_reduce_in_fp32:true,fp8:e4m3,fp8_recipe:mxfp8}'\n"));
}

// Where the optimizer is sharded and the profile says that weights are gathered in fp8.
TEST(Fp8, WeightsAreGatheredInFp8) {
  Plan plan = loadPlan("llama3-70b-256xh100");
  const spec::ModelSpec model = loadModel(plan);
  plan.training.precision = spec::Precision::kFp8;
  const auto text = [&](Framework framework, spec::Fp8Recipe recipe, bool gathers) {
    const auto exported =
        exportPlan(plan, model, framework, {.settings = {.fp8 = recipe}, .gathersF8 = gathers});
    return exported.has_value() ? exported->text : exported.error().message();
  };
  using spec::Fp8Recipe;
  ASSERT_EQ(plan.stateSharding, plan::StateSharding::kOptimizer);
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kCurrent, true),
              AllOf(HasSubstr("--fp8-param-gather\n"), Not(HasSubstr("--reuse-grad-buf"))));
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kMx, true),
              HasSubstr("--fp8-param-gather\n--reuse-grad-buf-for-mxfp8-param-ag\n"));
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kCurrent, true),
              HasSubstr(",fp8_recipe:tensorwise,fp8_param_gather:true}'\n"));
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kMx, true),
              HasSubstr(",fp8_recipe:mxfp8,fp8_param_gather:true,"
                        "reuse_grad_buf_for_mxfp8_param_ag:true}'\n"));
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kMx, false),
              Not(HasSubstr("fp8_param_gather:true")));
  // Megatron-FSDP, which goes without a pipeline, has no buffer to reuse.
  Plan whole = small::plan(model, plan.training, 1, 1, 8);
  whole.dpShard = 8;
  whole.dpReplicate = 1;
  whole.stateSharding = plan::StateSharding::kParameters;
  const auto fsdp = exportPlan(whole, model, Framework::kMegatron,
                               {.settings = {.fp8 = Fp8Recipe::kMx}, .gathersF8 = true});
  ASSERT_TRUE(fsdp.has_value()) << fsdp.error().message();
  EXPECT_THAT(fsdp->text, AllOf(HasSubstr("--fp8-param-gather\n"), Not(HasSubstr("--reuse"))));
  plan.stateSharding = plan::StateSharding::kNone;
  std::swap(plan.dpShard, plan.dpReplicate);
  EXPECT_THAT(text(Framework::kNemo, Fp8Recipe::kMx, true), Not(HasSubstr("fp8_param_gather")));
  EXPECT_THAT(text(Framework::kMegatron, Fp8Recipe::kMx, true), Not(HasSubstr("-gather")));
}

// The profile nemo has two bytes of each gradient, megatron-core four. Bridge's bf16_mixed and
// Megatron without a flag have four; fp16_mixed and Megatron's fp16 without one have two.
TEST(Gradients, AreAddedUpAsTheProfilePricesThem) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training());
  const auto exported = [&](Framework framework, const char* stack) {
    ExportOptions options;
    setStack(spec::loadStack(stack).value(), options);
    return exportPlan(plan, model, framework, options).value();
  };
  plan.training.precision = spec::Precision::kBf16;
  const Exported narrow = exported(Framework::kNemo, "nemo");
  EXPECT_THAT(narrow.text,
              HasSubstr("\n'mixed_precision={_target_:megatron.bridge.training.mixed_precision."
                        "MixedPrecisionConfig,bf16:true,"
                        "params_dtype:{_target_:torch.bfloat16,_call_:false},"
                        "pipeline_dtype:{_target_:torch.bfloat16,_call_:false},"
                        "grad_reduce_in_fp32:false}'\n"));
  EXPECT_THAT(narrow.notes, ::testing::Contains(HasSubstr("as the plan is priced: gradients in "
                                                          "bf16, which Bridge's recipes by name")));
  const Exported wide = exported(Framework::kNemo, "megatron-core");
  EXPECT_THAT(wide.text, HasSubstr("\nmixed_precision=bf16_mixed\n"));
  EXPECT_THAT(wide.notes, Not(::testing::Contains(HasSubstr("mixed_precision"))));
  EXPECT_THAT(exported(Framework::kMegatron, "nemo").text, HasSubstr("--grad-reduce-in-bf16\n"));
  EXPECT_THAT(exported(Framework::kMegatron, "megatron-core").text,
              HasSubstr("--accumulate-allreduce-grads-in-fp32\n"));

  plan.training.precision = spec::Precision::kFp16;
  EXPECT_THAT(exported(Framework::kNemo, "nemo").text, HasSubstr("mixed_precision=fp16_mixed\n"));
  EXPECT_THAT(
      exported(Framework::kNemo, "megatron-core").text,
      AllOf(HasSubstr("MixedPrecisionConfig,fp16:true,params_dtype:{_target_:torch.float16"),
            HasSubstr("grad_reduce_in_fp32:true}'\n")));
  EXPECT_THAT(exported(Framework::kMegatron, "nemo").text, Not(HasSubstr("grads-in-fp32")));
}

// Megatron's arguments overlap the reductions of replicas; megatron-core's times do not.
TEST(Reductions, AreNotedWhereTheyAreHiddenAndPricedInFull) {
  const spec::ModelSpec model = flavored();
  const auto notes = [&](const char* stack, int64_t dp) {
    ExportOptions options;
    setStack(spec::loadStack(stack).value(), options);
    const Plan plan = small::plan(model, small::training(48, 32), 2, 2, dp);
    return exportPlan(plan, model, Framework::kMegatron, options).value().notes;
  };
  const auto isNoted = ::testing::Contains(HasSubstr("counts reductions and gathers in full"));
  EXPECT_THAT(notes("megatron-core-2023", 2), isNoted);
  EXPECT_THAT(notes("megatron-core-2023", 1), Not(isNoted));
  EXPECT_THAT(notes("megatron-core", 2), Not(isNoted));
  EXPECT_THAT(notes("nemo", 2), Not(isNoted));
}

// The profile nemo hides collectives of tensor parallelism, megatron-core none; Megatron can under
// sequence parallelism only. Transfers of interleaved stages are Megatron-LM's own overlap.
TEST(TensorParallel, IsOverlappedWhereThePlanIsPricedSo) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(48, 32), 2, 2, 1);
  const auto exported = [&](Framework framework, const char* stack) {
    ExportOptions options;
    setStack(spec::loadStack(stack).value(), options);
    return exportPlan(plan, model, framework, options).value();
  };
  const auto isNoted = ::testing::Contains(HasSubstr("where NVLink joins their ranks"));
  EXPECT_THAT(exported(Framework::kNemo, "nemo").text, Not(HasSubstr("comm_overlap")));
  EXPECT_THAT(exported(Framework::kNemo, "nemo").notes, Not(isNoted));
  plan.sequenceParallel = true;
  const Exported nemo = exported(Framework::kNemo, "nemo");
  EXPECT_THAT(nemo.text, HasSubstr("\n'comm_overlap={_target_:megatron.bridge.training.comm_overlap"
                                   ".CommOverlapConfig,tp_comm_overlap:true}'\n"));
  EXPECT_THAT(nemo.notes, isNoted);
  EXPECT_THAT(exported(Framework::kMegatron, "nemo").text, HasSubstr("\n--tp-comm-overlap\n"));
  EXPECT_THAT(exported(Framework::kMegatron, "megatron-core").text, Not(HasSubstr("tp-comm")));
  EXPECT_THAT(exported(Framework::kNemo, "megatron-core").text, Not(HasSubstr("comm_overlap")));
  EXPECT_THAT(exported(Framework::kMegatron, "nemo").notes, isNoted);
  EXPECT_THAT(exported(Framework::kMegatron, "megatron-core").notes, Not(isNoted));
  // Two of hosts of one, which may be those of an NVL72; 16 of two hosts of eight.
  plan.devicesPerHost = 1;
  EXPECT_TRUE(mayShareIsland(plan));
  plan.devicesPerHost = 8;
  plan.tp = 16;
  EXPECT_FALSE(mayShareIsland(plan));
  plan.tp = 2;
  plan = small::interleaved(plan, model, 2);
  EXPECT_THAT(exported(Framework::kNemo, "megatron-core").text,
              HasSubstr("CommOverlapConfig,tp_comm_overlap:false,overlap_p2p_comm:true,"
                        "batch_p2p_comm:false,align_param_gather:true}'\n"));
}

TEST(Restriction, KeepsFp8OnlyWithARecipeOfTheFramework) {
  const auto precisions = [](const char* stack, Framework framework) {
    const auto restricted = restrictedTo(spec::loadStack(stack).value(), framework);
    return restricted.has_value() ? restricted->precisions : std::vector<spec::Precision>{};
  };
  EXPECT_THAT(precisions("nemo", Framework::kTorchtitan),
              ::testing::ElementsAre(spec::Precision::kBf16));
  EXPECT_THAT(precisions("nemo-fp8-mx", Framework::kMegatron),
              ::testing::ElementsAre(spec::Precision::kFp8));
  EXPECT_THAT(precisions("torchtitan-compiled-fp8-rowwise", Framework::kMegatron),
              ::testing::Not(::testing::Contains(spec::Precision::kFp8)));
}

// Megatron's --lr-decay-iters counts from the start: 10 steps of warm-up and 90 of decay end at
// 100.
TEST(Megatron, TheDecayIncludesTheWarmUp) {
  const spec::ModelSpec model = small::gpt();
  Plan plan = small::plan(model, small::training());
  plan.training.warmupSteps = 10;
  plan.training.decaySteps = 90;
  EXPECT_THAT(megatronText(plan, model), HasSubstr("--lr-decay-iters 100\n"));
  EXPECT_THAT(megatronText(plan, model), HasSubstr("--train-iters 100\n"));
}

TEST(Megatron, ShardedStateIsTheDistributedOptimizerOrMegatronFsdp) {
  const spec::ModelSpec model = small::gpt();
  Plan plan = small::plan(model, small::training());
  plan.stateSharding = plan::StateSharding::kOptimizer;
  plan.dpShard = 2;
  plan.dpReplicate = 4;
  EXPECT_THAT(megatronText(plan, model), HasSubstr("--use-distributed-optimizer\n"));
  EXPECT_THAT(megatronText(plan, model), HasSubstr("--num-distributed-optimizer-instances 4\n"));
  EXPECT_THAT(megatronText(plan, model), Not(HasSubstr("fsdp")));
  plan.stateSharding = plan::StateSharding::kParameters;
  EXPECT_THAT(megatronText(plan, model),
              HasSubstr("--data-parallel-sharding-strategy optim_grads_params\n"));
}

// A replica's 16 / 2 samples go through the pipeline at once in microbatches of 2; without a
// pipeline a step adds up gradients of one microbatch after the other.
// parallel_state.py orders ranks tp-cp-ep-dp-pp, or by the flag tp-cp-ep-pp-dp, which Megatron's
// FSDP does not know. The others have one order.
TEST(RankOrder, IsWrittenWhereTheTargetHasIt) {
  const spec::ModelSpec model = small::gpt(12);
  Plan plan = small::plan(model, small::training(48, model.maxSequence), 1, 2, 4);
  const auto textOf = [&](Framework framework) {
    const Result<Exported> exported = exportPlan(plan, model, framework);
    return exported.has_value() ? exported->text : exported.error().message();
  };
  EXPECT_THAT(textOf(Framework::kMegatron), Not(HasSubstr("mapping")));
  EXPECT_THAT(textOf(Framework::kNemo), Not(HasSubstr("mapping")));
  plan.rankOrder = plan::RankOrder::kTpCpPpDp;
  EXPECT_THAT(textOf(Framework::kMegatron), HasSubstr("\n--use-tp-pp-dp-mapping\n"));
  EXPECT_THAT(textOf(Framework::kNemo), HasSubstr("\ndist.use_tp_pp_dp_mapping=true\n"));
  for (const Framework framework :
       {Framework::kTorchtitan, Framework::kDeepspeed, Framework::kAccelerate})
    EXPECT_THAT(textOf(framework), HasSubstr("rank order tp-cp-pp-dp (nearest: tp-cp-dp-pp)"));
  std::swap(plan.dpReplicate, plan.dpShard);
  plan.stateSharding = plan::StateSharding::kParameters;
  for (const Framework framework : {Framework::kMegatron, Framework::kNemo})
    EXPECT_THAT(textOf(framework),
                HasSubstr("cannot express rank order tp-cp-pp-dp with state sharding parameters "
                          "(nearest: rank order tp-cp-dp-pp)"));
}

TEST(Torchtitan, TheLocalBatchIsThatOfThePipeline) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(16, 32), 1, 2, 1);
  plan.stateSharding = plan::StateSharding::kParameters;
  plan.dpReplicate = 1;
  plan.dpShard = 2;
  plan.microbatchSize = 2;
  const std::string pipeline = exportPlan(plan, model, Framework::kTorchtitan)->text;
  EXPECT_THAT(pipeline, HasSubstr("local_batch_size = 8\n"));
  EXPECT_THAT(pipeline, HasSubstr("pipeline_parallel_microbatch_size = 2\n"));
  EXPECT_THAT(pipeline, HasSubstr("\"layers.15\"],\n  [\"layers.16\""));
  plan.pp = 1;
  plan.layers = plan::evenLayers(model.numLayers, 1, 1);
  EXPECT_THAT(exportPlan(plan, model, Framework::kTorchtitan)->text,
              HasSubstr("local_batch_size = 2\n"));
}

// The batch is micro-batch x accumulation x GPUs: 48 = 2 x 6 x 4.
TEST(Deepspeed, TheBatchIsTheProductOfItsParts) {
  const spec::ModelSpec model = small::gpt();
  Plan plan = small::plan(model, small::training(48, 32));
  plan.stateSharding = plan::StateSharding::kGradients;
  plan.dpReplicate = 1;
  plan.dpShard = 4;
  plan.microbatchSize = 2;
  const auto json = nlohmann::json::parse(exportPlan(plan, model, Framework::kDeepspeed)->text);
  EXPECT_EQ(json.at("train_batch_size"), 48);
  EXPECT_EQ(json.at("train_micro_batch_size_per_gpu"), 2);
  EXPECT_EQ(json.at("gradient_accumulation_steps"), 6);
  EXPECT_EQ(json.at("zero_optimization").at("stage"), 2);
  EXPECT_TRUE(json.at("bf16").at("enabled").get<bool>());
}

}  // namespace
}  // namespace trireme::codegen
