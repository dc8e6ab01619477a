// Launch scripts of Megatron-LM: what they leave open is asked for, never left out; what their
// conditions decide is decided; one launch is one plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/export/export.h"
#include "codegen/import/import.h"
#include "ir/spec/load.h"
#include "tests/support/damaged_text.h"
#include "tests/support/small_plan.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// small::gpt(4) on 8 devices, unless `more` says otherwise.
const std::string kModel =
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
    "--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 32 ";

Result<Imported> readScript(const std::string& text, const LaunchOptions& launch = {}) {
  return importPlan(Framework::kMegatron, text, "run.sh", small::gpt(4), launch);
}
std::string refusalOfScript(const std::string& text, const LaunchOptions& launch = {}) {
  const Result<Imported> imported = readScript(text, launch);
  return imported.has_value() ? "read" : imported.error().message();
}
// "tp pp dp" of the plan, or the message.
std::string degrees(const std::string& text, const LaunchOptions& launch = {}) {
  const Result<Imported> imported = readScript(text, launch);
  if (!imported.has_value()) return imported.error().message();
  const Plan& p = imported->plan;
  return std::to_string(p.tp) + " " + std::to_string(p.pp) + " " + std::to_string(p.dp());
}
const std::string kRun = "torchrun --nproc-per-node 8 pretrain_gpt.py " + kModel;

TEST(MegatronScript, TheModelOfTheTestsIsRead) {
  const Result<Imported> imported = readScript(kRun + "--vocab-size 512");
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_THAT(imported->unpriced, ElementsAre());
}

TEST(MegatronScript, WordsThatAreNotKnownAreErrors) {
  const std::string run = "\n" + kRun;
  EXPECT_THAT(refusalOfScript(run + "$PARALLEL_ARGS"),
              HasSubstr("run.sh:2: $PARALLEL_ARGS is set outside of this file"));
  EXPECT_THAT(refusalOfScript("source env.sh" + run + "\\\n $PARALLEL_ARGS"),
              AllOf(HasSubstr("run.sh:3: $PARALLEL_ARGS"), HasSubstr("write its value")));
  EXPECT_THAT(refusalOfScript(run + "$(cat args.txt)"),
              HasSubstr("$(cat args.txt) is the output of a command, which is not run"));
  EXPECT_THAT(refusalOfScript(run + "`cat args.txt`"), HasSubstr("`cat args.txt` is the output"));
  EXPECT_THAT(refusalOfScript(run + "\"${ARGS[@]}\""), HasSubstr("${ARGS[@]} is set outside"));
  EXPECT_THAT(refusalOfScript(run + "$1"), HasSubstr("$1 is given by whoever runs this file"));
  EXPECT_THAT(refusalOfScript(run + "\"$@\""), HasSubstr("$@ is given by whoever runs this file"));
  // Behind a switch, or behind a value, it is no value.
  EXPECT_THAT(refusalOfScript(run + "--bf16 $MORE"), HasSubstr("$MORE is set outside"));
  EXPECT_THAT(refusalOfScript(run + "--lr 1e-4 $MORE"), HasSubstr("$MORE is set outside"));
  EXPECT_THAT(refusalOfScript(run + "--not-known $MORE_ARGS"),
              HasSubstr("$MORE_ARGS is set outside"));
  EXPECT_THAT(refusalOfScript(run + "--data-path $DATA ${more[@]}"),
              HasSubstr("${more[@]} is set outside"));
  EXPECT_EQ(refusalOfScript(run + "--data-path ${TRAIN_DATA[@]}"), "read");
  EXPECT_THAT(refusalOfScript(run + "--data-path ${DATA_ARGS[@]}"),
              HasSubstr("${DATA_ARGS[@]} is set outside"));
  EXPECT_THAT(refusalOfScript(run + "--$NAME 2"), HasSubstr("$NAME is set outside"));
  EXPECT_THAT(
      refusalOfScript("torchrun --nproc-per-node 8 pretrain_gpt.py $ARGS\n# --micro-batch-size"),
      HasSubstr("run.sh:1: $ARGS is set outside"));
}

// Transformer Engine's switches, wherever they are: exported, before the command, or handed on.
TEST(MegatronScript, VariablesThatChooseKernelsAreRead) {
  const auto notesOf = [](const std::string& text) {
    const Result<Imported> imported = readScript(text);
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    return imported.has_value() ? imported->notes : std::vector<std::string>();
  };
  const std::string run = kRun + "--vocab-size 512 ";
  const auto isFlash = ElementsAre(HasSubstr("NVTE_FUSED_ATTN=0: priced as the stack's attention"),
                                   HasSubstr("stops there without --attention-backend flash"));
  for (const std::string& text :
       {"export NVTE_FUSED_ATTN=0\n" + run, "NVTE_FUSED_ATTN=0 NVTE_FLASH_ATTN=1 " + run,
        "env NVTE_FUSED_ATTN=0 " + run, "F=0; export NVTE_FUSED_ATTN=$F NVTE_DEBUG=0\n" + run,
        "mpirun -np 8 -x NVTE_FUSED_ATTN=0 python pretrain_gpt.py " + kModel + "--vocab-size 512"})
    EXPECT_THAT(notesOf(text), isFlash) << text;
  for (const std::string& text :
       {"export NVTE_FUSED_ATTN=1\n" + run, "export NVTE_FLASH_ATTN=0\n" + run,
        "export NVTE_FUSED_ATTN=0\nunset NVTE_FUSED_ATTN\n" + run,
        "NVTE_FUSED_ATTN=0 python other.py\n" + run})
    EXPECT_THAT(notesOf(text), ElementsAre()) << text;
  EXPECT_THAT(notesOf("export NVTE_FUSED_ATTN=0\n" + run + "--attention-backend flash"),
              ElementsAre(HasSubstr("--attention-backend is flash: priced as")));
  EXPECT_THAT(refusalOfScript("export NVTE_FUSED_ATTN=0 NVTE_FLASH_ATTN=0\n" + run),
              HasSubstr("NVTE_FUSED_ATTN and NVTE_FLASH_ATTN are 0: attention in parts cannot"));
}

TEST(MegatronScript, ValuesThatCountAreErrorsAndOthersAreNot) {
  EXPECT_THAT(refusalOfScript(kRun + "--tensor-model-parallel-size $TP"),
              HasSubstr("run.sh:1: --tensor-model-parallel-size is $TP, which is set outside"
                        " of this file") /* what to do follows */);
  EXPECT_THAT(refusalOfScript(kRun + "--context-parallel-size=$(nproc)"),
              HasSubstr("--context-parallel-size is $(nproc), which is the output"));
  EXPECT_THAT(refusalOfScript("TP=$1\n" + kRun + "--tensor-model-parallel-size $TP"),
              HasSubstr("--tensor-model-parallel-size is $1"));
  const Result<Imported> imported = readScript(
      "PORT=$((RANDOM + 1)); OUT=$ROOT/out\ntorchrun --nproc_per_node 8 --node_rank $RANK "
      "--master_addr $(hostname) --master_port=$PORT $ROOT/pretrain_gpt.py " +
      kModel +
      "--data-path 0.3 $DATA 0.7 \"$MORE\" --save $OUT --tokenizer-model \"$TOKENIZER\" --lr $LR "
      "--seed $SEED --tensorboard-dir $LOGS --wandb-name run-$ID");
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  // What was not known is said.
  EXPECT_THAT(imported->unpriced, ElementsAre("--lr", "--seed", "--wandb-name"));
}

TEST(MegatronScript, LaunchOptionsGiveTheRanksThatTheTextDoesNot) {
  const std::string text =
      "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $N pretrain_gpt.py " + kModel;
  EXPECT_EQ(degrees(text, {.gpus = 16}), "1 1 16");
  EXPECT_THAT(degrees(text), HasSubstr("(--gpus)"));
  EXPECT_EQ(degrees("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n" + text), "1 1 8");
  const std::string open = "torchrun $DISTRIBUTED_ARGS pretrain_gpt.py " + kModel;
  EXPECT_THAT(degrees(open),
              AllOf(HasSubstr("$DISTRIBUTED_ARGS is set outside"), HasSubstr("or give --gpus")));
  EXPECT_EQ(degrees(open, {.gpus = 4}), "1 1 4");
  for (const char* all : {"gpu", "auto"}) {
    const std::string some =
        std::string("torchrun --nproc_per_node=") + all + " pretrain_gpt.py " + kModel;
    EXPECT_EQ(degrees(some, {.gpus = 4}), "1 1 4");
    EXPECT_THAT(degrees(some), HasSubstr("(--gpus)"));
  }
}

// Of an elastic run the nodes are open, whatever its bounds.
TEST(MegatronScript, NodesOfAnElasticRunAreAskedFor) {
  const std::string text = "torchrun --nnodes 1:8 --nproc-per-node 4 pretrain_gpt.py " + kModel;
  EXPECT_THAT(degrees(text), HasSubstr("run.sh does not say the number of devices (--gpus)"));
  EXPECT_EQ(degrees(text, {.gpus = 16}), "1 1 16");
  EXPECT_EQ(readScript(text, {.gpus = 16})->ranksPerHost, 4);
  EXPECT_EQ(degrees("#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsrun " + text), "1 1 8");
}

TEST(MegatronScript, RanksOfMpirunAreThoseThatItStarts) {
  const std::string program = " python pretrain_gpt.py " + kModel;
  for (const char* mpirun :
       {"mpirun -np 16 -N 8 -x PATH", "mpirun -n 16 --npernode 8", "mpiexec -np=16 -ppn 8",
        "N=8; mpirun -np $((2 * N)) --map-by ppr:$N:node -bind-to none"}) {
    const Result<Imported> imported = readScript(mpirun + program);
    ASSERT_TRUE(imported.has_value()) << mpirun << imported.error().message();
    EXPECT_EQ(imported->plan.dp(), 16) << mpirun;
    EXPECT_EQ(imported->ranksPerHost, 8) << mpirun;
  }
  EXPECT_THAT(degrees("mpirun --map-by slot" + program), HasSubstr("(--gpus)"));
  EXPECT_EQ(degrees("mpirun -np $RANKS" + program, {.gpus = 8}), "1 1 8");
  EXPECT_THAT(degrees("mpirun -np 16" + program, {.gpus = 8}),
              HasSubstr("run.sh:1: mpirun -np is 16, but --gpus is 8"));
  EXPECT_THAT(degrees("mpirun -np many" + program),
              HasSubstr("run.sh:1: -np of mpirun is 'many'; expected a whole number"));
  // One launcher on each of two nodes.
  EXPECT_EQ(
      degrees("mpirun -np 2 torchrun --nnodes 2 --nproc-per-node 4 pretrain_gpt.py " + kModel),
      "1 1 8");
}

// Whoever says it: torchrun, or Slurm by GPUs, by tasks or by both numbers in all.
TEST(MegatronScript, RanksPerHostAreThoseThatAreLaunched) {
  const auto perHost = [](const std::string& text, const LaunchOptions& launch = {}) {
    const Result<Imported> imported = readScript(text, launch);
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    return imported.has_value() ? imported->ranksPerHost : -1;
  };
  const std::string torchrun = "torchrun --nnodes $SLURM_NNODES --nproc-per-node $N ";
  const std::string program = "pretrain_gpt.py " + kModel, plain = "srun python " + program;
  EXPECT_EQ(perHost("torchrun --nnodes 2 --nproc_per_node 4 " + program), 4);
  EXPECT_EQ(perHost("torchrun --nproc-per-node 8 " + program), 8);
  EXPECT_EQ(perHost("torchrun --nnodes $NODES --nproc-per-node 2 " + program, {.gpus = 8}), 2);
  EXPECT_EQ(perHost("#SBATCH -N 2 --gpus-per-node=4\nsrun " + torchrun + program), 4);
  EXPECT_EQ(perHost("#SBATCH -N 4 --gpus=8\nsrun " + torchrun + program), 2);
  EXPECT_EQ(perHost("#SBATCH -N 4 --ntasks-per-node=2\n" + plain), 2);
  EXPECT_EQ(perHost("#SBATCH -N 2 --ntasks=8\n" + plain), 4);
  EXPECT_EQ(perHost("srun " + torchrun + program, {.gpus = 8}), 0);
  EXPECT_EQ(perHost("torchrun $DISTRIBUTED_ARGS " + program, {.gpus = 8}), 0);
}

TEST(MegatronScript, DecidableConditionsAreDecided) {
  EXPECT_EQ(degrees("SIZE=big\nTP=1\nif [ \"$SIZE\" = big ]; then TP=2; else TP=4; fi\n" + kRun +
                    "--tensor-model-parallel-size $TP"),
            "2 1 4");
  EXPECT_EQ(degrees("SIZE=small\ncase $SIZE in big) TP=4;; small|tiny) TP=2;; *) TP=1;; esac\n" +
                    kRun + "--tensor-model-parallel-size $TP"),
            "2 1 4");
  EXPECT_EQ(
      degrees("DTYPE=bf16; ARGS=()\nif [[ \"$DTYPE\" == \"fp8\" ]]; then\nARGS+=(\"--fp8-format "
              "hybrid\")\nfi\n" +
              kRun + "${ARGS[@]}"),
      "1 1 8");
}

TEST(MegatronScript, OpenConditionsMustNotMatter) {
  const std::string tp = kRun + "--tensor-model-parallel-size $TP";
  EXPECT_THAT(degrees("TP=1\nif [ \"$SIZE\" = big ]; then\n  TP=2\nfi\n" + tp),
              AllOf(HasSubstr("run.sh:2: the plan depends on this condition"),
                    HasSubstr("write out what it chooses")));
  EXPECT_THAT(degrees("\n[ -f big ] && TP=2 || TP=4\n" + tp),
              HasSubstr("run.sh:2: the plan depends"));
  EXPECT_THAT(degrees("case $SIZE in\nbig) TP=4;;\n*) TP=2;; esac\n" + tp),
              HasSubstr("run.sh:1: the plan depends"));
  // As many ranks, on other hosts.
  EXPECT_THAT(degrees("if [ -f a ]; then N=1; G=8; else N=2; G=4; fi\ntorchrun --nnodes $N "
                      "--nproc-per-node $G pretrain_gpt.py " +
                      kModel),
              HasSubstr("1 1 8"));
  // Behind a first open condition that decides nothing.
  EXPECT_THAT(degrees("[ -d out ] || mkdir out\nif [ -f a ]; then TP=2; else TP=4; fi\n" + tp),
              HasSubstr("run.sh:2: the plan depends"));
  // Two of one line.
  EXPECT_THAT(degrees("TP=1; if [ -f a ]; then X=1; fi; if [ -f b ]; then TP=2; fi\n" + tp),
              HasSubstr("run.sh:1: the plan depends"));
  EXPECT_THAT(
      degrees("if [ -z \"$TP\" ]; then TP=2; fi\n" + tp),
      AllOf(HasSubstr("run.sh:1: the plan depends"), HasSubstr("one way:"), HasSubstr("$TP")));
  // The same, or nothing that counts.
  EXPECT_EQ(degrees("if [ -f a ]; then TP=2; else TP=$((1+1)); fi\n" + tp), "2 1 4");
  EXPECT_EQ(degrees("if [ -n \"$MOCK\" ]; then DATA=--mock-data; else DATA=\"--data-path $D "
                    "--tokenizer-model x\"; fi\n" +
                    kRun + "$DATA"),
            "1 1 8");
  EXPECT_EQ(degrees("if [ $# -lt 1 ]; then echo usage; exit 1; fi\nif [ ! -f x ]; then exit 2; "
                    "fi\nmkdir -p \"$(dirname x)\"\ncd x || exit 1\n" +
                    kRun),
            "1 1 8");
  EXPECT_EQ(degrees("if [ \"$NODE_RANK\" = 0 ]; then\n" + kRun + "--save $A\nelse\n" + kRun +
                    "--load b\nfi"),
            "1 1 8");
}

TEST(MegatronScript, SeveralLaunchesAreRefused) {
  EXPECT_THAT(refusalOfScript(kRun + "\n\n" + kRun + "--bf16"),
              AllOf(HasSubstr("run.sh:3: a second command"), HasSubstr("of line 1")));
  EXPECT_THAT(refusalOfScript("for TP in 1 2; do\n" + kRun + "\ndone"),
              HasSubstr("run.sh:2: is in the loop of line 1"));
  EXPECT_THAT(refusalOfScript("while true; do\n" + kRun + "\ndone"),
              HasSubstr("run.sh:2: is in the loop of line 1"));
  EXPECT_EQ(degrees("# " + kRun + "--bf16\n: '\n" + kRun + "'\n" + kRun), "1 1 8");
  EXPECT_THAT(
      refusalOfScript(kRun + "\n  --tensor-model-parallel-size 2"),
      HasSubstr("run.sh:2: a command begins with --tensor-model-parallel-size: a backslash"));
  EXPECT_THAT(refusalOfScript("ARGS=\"\n" + kModel + "\"\n"),
              HasSubstr("run.sh:2: no command of this file launches"));
  EXPECT_THAT(refusalOfScript("ssh node \"" + kRun + "\""), HasSubstr("a command in quotes"));
  EXPECT_EQ(degrees("echo \"" + kRun + "\"\ncat > job.sh <<EOF\n" + kRun + "--bf16\nEOF\n" + kRun),
            "1 1 8");
}

TEST(MegatronScript, FunctionsAndQuotedCommandsAreFollowed) {
  EXPECT_EQ(degrees("launch() {\n" + kRun + "$@\n}\nlaunch --tensor-model-parallel-size 2"),
            "2 1 4");
  const std::string tp = "--tensor-model-parallel-size 2";
  EXPECT_EQ(degrees("CMD=\"" + kRun + tp + "\"\nsrun -l sh -c \"${CMD}\""), "2 1 4");
  EXPECT_EQ(degrees("CMD=\"" + kRun + tp + "\"\neval \"$CMD\""), "2 1 4");
  EXPECT_EQ(degrees("bash -lc '" + kRun + tp + "'"), "2 1 4");
  EXPECT_EQ(degrees("docker run --gpus all -v /a:/b image bash -c \"cd /b && " + kRun + tp + "\""),
            "2 1 4");
  EXPECT_THAT(degrees("srun sh -c \"$CMD\" # --micro-batch-size"),
              HasSubstr("$CMD is set outside"));
  EXPECT_THAT(refusalOfScript("bash -c \"\n" + kRun + "--tensor-model-parallel-size two\""),
              HasSubstr("run.sh:2: --tensor-model-parallel-size is 'two'"));
}

TEST(MegatronScript, ListsOfArgumentsAreRead) {
  std::string lines = kModel + "--tensor-model-parallel-size 2";
  for (size_t at = lines.find(" --"); at != std::string::npos; at = lines.find(" --"))
    lines[at] = '\n';
  EXPECT_EQ(degrees(lines + "\n", {.gpus = 8}), "2 1 4");
  std::replace(lines.begin(), lines.end(), ' ', '\n');
  EXPECT_EQ(degrees(lines, {.gpus = 8}), "2 1 4");
}

struct Sbatch {
  const char* lines;
  const char* expected;
};

// 8 devices, however they are said; n tasks of one device each.
TEST(MegatronScript, SlurmSaysTheRanks) {
  for (const Sbatch& s : std::initializer_list<Sbatch>{
           {"--nodes=2\n--gres=gpu:4", "1 1 8"},
           {"-N2\n--gres gpu:h100:4", "1 1 8"},
           {"-N 2 --gres=gpu:h100:4(S:0-1),nvme:1", "1 1 8"},
           {"--nodes 2\n--gpus-per-node h100:4 # all", "1 1 8"},
           {"--gpus=8", "1 1 8"},
           {"--gpus 8", "1 1 8"},
           {"-G 8", "1 1 8"},
           {"-G h100:8", "1 1 8"},
           {"-N 2\n--ntasks-per-node=4\n--gpus-per-task=1", "1 1 8"},
           {"-n 8 --gpus-per-task=1", "1 1 8"},
           {"-n8", "1 1 8"},
           {"--nodes=2 --ntasks-per-node=4", "1 1 8"},
           {"--nodes=2", "(--gpus)"},
           {"--nodes=2 --gres=gpu:4 --gpus=16",
            "--nodes 2 x --gres gpu:4 is 8 devices, but --gpus 16 is 16"},
           {"--nodes=2 --gres=gpu:4 --ntasks=4 --gpus-per-task=1",
            "but --ntasks 4 x --gpus-per-task"},
           {"--nodes=2\n--nodes=4 --gres=gpu:4", "run.sh:2: --nodes 4, but --nodes 2 above"},
           {"--nodes=two", "run.sh:1: --nodes is 'two'; expected a whole number"}}) {
    std::string text = std::string("#SBATCH ") + s.lines + "\n";
    for (size_t at = text.find("\n--"); at != std::string::npos; at = text.find("\n--"))
      text.replace(at, 1, "\n#SBATCH ");
    EXPECT_THAT(degrees(text + "srun python pretrain_gpt.py " + kModel), HasSubstr(s.expected))
        << text;
  }
  const std::string torchrun = "torchrun --nnodes 2 --nproc-per-node 4 pretrain_gpt.py " + kModel;
  EXPECT_EQ(degrees("#SBATCH -N 2 --ntasks-per-node=1 --gpus-per-node=4\nsrun " + torchrun),
            "1 1 8");
  EXPECT_THAT(degrees("#SBATCH -N 4 --gpus-per-node=4\nsrun " + torchrun),
              HasSubstr("--nnodes x devices is 8, but Slurm is asked for 16"));
  // A step may take less than the job has.
  EXPECT_EQ(degrees("#SBATCH -N 4 --gpus-per-node=4\nsrun -N 2 " + torchrun), "1 1 8");
  EXPECT_EQ(degrees("#SBATCH -N 2 --gres=gpu:4\nNODES=${SLURM_NNODES:-1}\ntorchrun --nnodes $NODES "
                    "--nproc-per-node $SLURM_GPUS_ON_NODE pretrain_gpt.py " +
                    kModel),
            "1 1 8");
}

// What is exported comes back, however it is launched.
TEST(MegatronScript, EveryExportedScriptIsReadBack) {
  for (const int64_t devicesPerNode : {4, 8})
    for (const Launcher launcher : {Launcher::kTorchrun, Launcher::kSlurm, Launcher::kMpirun}) {
      const spec::ModelSpec model = small::gpt(4);
      Plan p = small::plan(model, small::training(32, 32), 2, 2, 2);
      p.stack = "megatron-core";
      p.layers = {{{0, 3}}, {{3, 1}}};  // a layout, which a shell has to quote
      ASSERT_TRUE(plan::verifyPlan(p, model).ok());
      Plan onNodes = p;
      onNodes.devicesPerHost = devicesPerNode;
      const Result<Exported> e = exportPlan(onNodes, model, Framework::kMegatron);
      ASSERT_TRUE(e.has_value()) << e.error().message();
      const std::string text = printExport(*e, onNodes, Framework::kMegatron, launcher);
      const Result<Imported> back = importPlan(Framework::kMegatron, text, "run.sh", model, {});
      ASSERT_TRUE(back.has_value()) << back.error().message() << "\n" << text;
      EXPECT_EQ(plan::printPlan(back->plan), plan::printPlan(p)) << text;
      EXPECT_THAT(back->unpriced, ElementsAre()) << text;
    }
}

// Layers of the stages, chunk by chunk: "3,1" on one chunk each, "1+2,..." on two.
std::string stagesOf(const std::string& more, int64_t layers = 12) {
  const std::string text =
      "python pretrain_gpt.py --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 32 --num-layers " +
      std::to_string(layers) + " " + more;
  const Result<Imported> imported =
      importPlan(Framework::kMegatron, text, "run.sh", small::gpt(layers), {.gpus = 4});
  if (!imported.has_value()) return imported.error().message();
  std::string stages;
  for (const auto& stage : imported->plan.layers) {
    stages += stages.empty() ? "" : ",";
    for (size_t i = 0; i < stage.size(); ++i)
      stages += (i > 0 ? "+" : "") + std::to_string(stage[i].count);
  }
  return stages;
}

// get_num_layers_to_build(): 12 layers on 4 stages. First 2 and last 4 leave 6 to 2 stages; with
// the embedding and the loss there are 14 + ... layers in equal parts, less what was counted.
TEST(MegatronScript, UnevenStagesAreThoseOfMegatron) {
  const std::string four = "--pipeline-model-parallel-size 4 ";
  const std::string two = "--pipeline-model-parallel-size 2 ";
  const std::string first = "--decoder-first-pipeline-num-layers ";
  const std::string last = "--decoder-last-pipeline-num-layers ";
  const std::string embedding = "--account-for-embedding-in-pipeline-split ";
  const std::string loss = "--account-for-loss-in-pipeline-split ";
  const std::string chunks = "--num-virtual-stages-per-pipeline-rank 2 ";
  EXPECT_EQ(stagesOf(four), "3,3,3,3");
  EXPECT_EQ(stagesOf(four + first + "2 " + last + "4"), "2,3,3,4");
  EXPECT_EQ(stagesOf(four + first + "3"), "3,3,3,3");
  EXPECT_EQ(stagesOf(four + last + "6"), "2,2,2,6");
  EXPECT_EQ(stagesOf(two + first + "5 " + last + "7"), "5,7");
  EXPECT_EQ(stagesOf(two + first + "5"), "5,7");
  // Both chunks of the first stage have 1 layer, of the middle ones 2, of the last 1.
  EXPECT_EQ(stagesOf(four + first + "2 " + last + "2 " + chunks), "1+1,2+2,2+2,1+1");
  // 14 layers and 2 counted: 16 / 4 = 4, less one at both ends; in chunks of 2: 2, of which the
  // first chunk of the first stage and the last of the last lose one.
  EXPECT_EQ(stagesOf(four + embedding + loss, 14), "3,4,4,3");
  EXPECT_EQ(stagesOf(four + embedding + loss + chunks, 14), "1+2,2+2,2+2,2+1");
  EXPECT_EQ(stagesOf(four + embedding + loss + "--num-layers-per-virtual-pipeline-stage 2", 14),
            "1+2,2+2,2+2,2+1");
  EXPECT_EQ(stagesOf(four + embedding, 11), "2,3,3,3");
  EXPECT_EQ(stagesOf(four + loss, 11), "3,3,3,2");

  EXPECT_THAT(stagesOf(four + first + "2 "),
              HasSubstr("--decoder-first-pipeline-num-layers leaves 10 "
                        "layers to 3 stages"));
  EXPECT_THAT(stagesOf(two + first + "5 " + last + "5"), HasSubstr("leaves 2 layers to 0 stages"));
  EXPECT_THAT(stagesOf(four + first + "3 " + chunks), HasSubstr("which 2 virtual stages do not"));
  EXPECT_THAT(stagesOf(four + embedding), HasSubstr("-in-pipeline-split leaves 13 layers to 4"));
  EXPECT_THAT(stagesOf(four + first + "2 " + loss), HasSubstr("goes not with --account-for"));
  EXPECT_THAT(stagesOf(four + first + "2 --num-layers-per-virtual-pipeline-stage 2"),
              HasSubstr("give --num-virtual-stages-per-pipeline-rank"));
  EXPECT_THAT(stagesOf(four + loss + "--pipeline-model-parallel-layout 'Ettt|ttt|ttt|tttL'"),
              HasSubstr("goes not with --pipeline-model-parallel-layout"));
}

// The habits of published scripts: defaults behind $1, arrays of quoted pairs, a check of the
// script's own file, pipes into logs, a step of Slurm in a container.
const char* const kHabits = R"SH(#!/bin/bash
#SBATCH --account=a --time 04:00:00
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
CHECKPOINTS=${1:-"checkpoints/small"}
TOKENIZER=${2:-"MOCK"} # or a path
DATETIME=`date +'%y-%m-%d'`
mkdir -p "$(dirname "$CHECKPOINTS")"
TP=2; DTYPE="bf16"
WORLD_SIZE=$(($SLURM_NNODES*4))
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head=${nodes[0]}
MODEL_ARGS=(
    --num-layers 4 --hidden-size 64 # small
    --num-attention-heads 4
    --seq-length 32 --max-position-embeddings 128
)
TRAINING_ARGS=(--micro-batch-size 1 --global-batch-size $((WORLD_SIZE / TP * 4)) --lr 1e-4)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    if grep -q local <<< "${MODEL_ARGS[@]}"; then echo "not local"; exit 1; fi
    DTYPE_ARGS+=("--fp8-format hybrid")
else
    DTYPE_ARGS+=("--${DTYPE}")
fi
DDP_ARGS=(--use-distributed-optimizer)
TRAINING_ARGS+=("${DDP_ARGS[@]}")
DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=("--mock-data" "--split '99,1,0'")
else
    DATA+=("--data-path $DATA_PATH" "--tokenizer-model $TOKENIZER")
fi
if [ ! -f pretrain_gpt.py ]; then
    echo "run it in Megatron-LM's folder"; exit 1
fi
options=" ${MODEL_ARGS[*]} ${TRAINING_ARGS[*]} ${DTYPE_ARGS[*]} \
    --tensor-model-parallel-size $TP \
    ${DATA[*]} --save ${CHECKPOINTS} --tensorboard-dir ${LOGS} "
run_cmd="cd $DIR && python -u pretrain_gpt.py ${options}"
echo "$run_cmd"
srun -l --container-mounts "/a:/a,/b:/b" --output=$LOGS/%x_%j_$DATETIME.log \
    sh -c "${run_cmd}" 2>&1 | tee log.txt
set +x
)SH";

TEST(MegatronScript, TheHabitsOfPublishedScriptsAreRead) {
  const Result<Imported> imported = readScript(kHabits);
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.tp, 2);
  EXPECT_EQ(imported->plan.dp(), 4);                       // 2 nodes x 4 devices / 2
  EXPECT_EQ(imported->plan.training.globalBatchSize, 16);  // 8 / 2 x 4
  EXPECT_EQ(imported->plan.training.precision, spec::Precision::kBf16);
  EXPECT_EQ(imported->plan.stateSharding, plan::StateSharding::kOptimizer);
  EXPECT_THAT(imported->unpriced, ElementsAre());
}

// Whatever the bytes: a legal plan, or a message with the file.
TEST(MegatronScript, DamagedScriptsAreReadOrRefused) {
  const std::string script =
      "#!/bin/bash\n#SBATCH --nodes=2 --gres=gpu:h100:4\nTP=${TP:-2}; A=(--bf16 --lr $LR)\nif [ "
      "\"$X\" "
      "= 1 ]; then\n  B=\"--save $S\"; else B=; fi\ncase $TP in 2) PP=1;; *) PP=2;; esac\nrun() { "
      "srun bash -c \"torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 pretrain_gpt.py " +
      kModel +
      "--tensor-model-parallel-size $TP $B ${A[*]} $*\"; }\nrun "
      "--pipeline-model-parallel-size $((PP))\n";
  EXPECT_EQ(degrees(script), "2 1 4");
  const auto check = [&](const std::string& text) {
    const Result<Imported> imported = readScript(text, {.gpus = 8});
    if (imported.has_value())
      EXPECT_TRUE(plan::verifyPlan(imported->plan, small::gpt(4)).ok()) << text;
    else
      EXPECT_THAT(imported.error().message(), HasSubstr("run.sh")) << text;
  };
  damageBytes(kHabits, "$$${}()[]\"\"''`\\;|&<>#!=+-*@ \n\tifdone12\xff", 1500, 4, check);
  damageBytes(script, "$$${}()[]\"\"''`\\;|&<>#!=+-*@ \n\tifdone12\xff", 3000, 4, check);
  damageLines(script, 1, check);
  const char* const kNumbers[] = {"0", "-1", "3", "2147483648", "9223372036854775808", "1e999"};
  damageNumbers(script, kNumbers, check);
  endEarly(script, 2, check);
}

}  // namespace
}  // namespace trireme::codegen
