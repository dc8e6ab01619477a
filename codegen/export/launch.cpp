// The commands and scripts around an exported plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/export/formats.h"
#include "ir/spec/load.h"

namespace trireme::codegen {
namespace {

std::string comment(const std::string& text) { return "# " + text + "\n"; }

std::string header(const Exported& exported, const plan::Plan& plan, Framework framework) {
  const spec::TrainingSpec& t = plan.training;
  std::string text = comment(
      fmt::format("{} for {} on {} ranks: tp {}, pp {}, cp {}, dp {}; batch {}, sequence {}, {}.",
                  infoOf(framework).title, plan.model, plan.numRanks(), plan.tp, plan.pp, plan.cp,
                  plan.dp(), t.globalBatchSize, t.sequenceLength, spec::precisionText(t)));
  text += comment("Written by trireme export.");
  for (const std::string& note : exported.notes) text += comment("Note: " + note + ".");
  return text;
}

std::string environment(const Exported& exported) {
  std::string text;
  for (const std::string& variable : exported.environment) text += "export " + variable + "\n";
  return text;
}

// The file, or the arguments as an array.
std::string payload(const Exported& exported) {
  if (!exported.fileName.empty())
    return fmt::format("cat > {} <<'END'\n{}END\n", exported.fileName, exported.text);
  std::string text = "ARGUMENTS=(\n";
  for (size_t begin = 0; begin < exported.text.size();) {
    const size_t end = exported.text.find('\n', begin) + 1;
    text += "  " + exported.text.substr(begin, end - begin);
    begin = end;
  }
  return text + ")\n";
}

std::string words(const Exported& exported) {
  std::vector<std::string> quotedWords;
  for (const std::string& word : exported.command) quotedWords.push_back(quoted(word));
  return fmt::format("{}{}", fmt::join(quotedWords, " "),
                     exported.fileName.empty() ? " \"${ARGUMENTS[@]}\"" : "");
}

// What starts the ranks of one node, whose number the shell expression `rank` gives.
std::string nodeCommand(const Exported& exported, Framework framework, const Nodes& nodes,
                        const std::string& rank) {
  const bool isAccelerate = framework == Framework::kAccelerate;
  if (nodes.count == 1)
    return isAccelerate ? "accelerate launch " + words(exported)
                        : fmt::format("torchrun --standalone --nproc-per-node {} {}", nodes.ranks,
                                      words(exported));
  if (isAccelerate)
    return fmt::format(
        "accelerate launch --machine_rank \"{}\" --main_process_ip \"$MASTER_ADDR\" "
        "--main_process_port \"$MASTER_PORT\" {}",
        rank, words(exported));
  return fmt::format(
      "torchrun --nnodes {} --nproc-per-node {} --node-rank \"{}\" --master-addr \"$MASTER_ADDR\" "
      "--master-port \"$MASTER_PORT\" {}",
      nodes.count, nodes.ranks, rank, words(exported));
}

std::string onEveryNode(const Exported& exported, const plan::Plan& plan, Framework framework,
                        const Nodes& nodes) {
  const std::string command = nodeCommand(exported, framework, nodes, "$NODE_RANK");
  const std::string where =
      nodes.count == 1
          ? ""
          : " on every node, with NODE_RANK, MASTER_ADDR (the first node) and MASTER_PORT set";
  if (exported.fileName.empty())
    return "#!/bin/bash\n" + header(exported, plan, framework) +
           (where.empty() ? "" : comment("Run it" + where + ".")) + environment(exported) +
           payload(exported) + command + "\n";
  if (framework == Framework::kDeepspeed) return exported.text;  // JSON has no comments
  std::string variables;
  for (const std::string& variable : exported.environment) variables += variable + " ";
  return header(exported, plan, framework) +
         comment(fmt::format("Save as {} and run{}:", exported.fileName, where)) +
         comment("  " + variables + command) + exported.text;
}

// A shell that every node runs inherits variables, but no arrays.
std::string onNodes(const std::string& starter, const Exported& exported, Framework framework,
                    const Nodes& nodes, const std::string& rank) {
  const std::string command = nodeCommand(exported, framework, nodes, rank);
  const size_t arguments = command.find("\"${ARGUMENTS[@]}\"");
  if (arguments == std::string::npos) return fmt::format("{} bash -c '{}'\n", starter, command);
  return fmt::format("{} bash -c '{}\"$@\"' node \"${{ARGUMENTS[@]}}\"\n", starter,
                     command.substr(0, arguments));
}

// The one task of a node starts a process per device: srun would give it one core.
std::string slurmScript(const Exported& exported, const plan::Plan& plan, Framework framework,
                        const Nodes& nodes) {
  return fmt::format(
             "#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n"
             "#SBATCH --gpus-per-node={}\n#SBATCH --exclusive\n",
             quoted(plan.model), nodes.count, nodes.ranks) +
         header(exported, plan, framework) + "set -euo pipefail\n" + environment(exported) +
         "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
         "export MASTER_PORT=29500\n" +
         payload(exported) +
         onNodes("srun --cpus-per-task=\"$SLURM_CPUS_ON_NODE\"", exported, framework, nodes,
                 "$SLURM_NODEID");
}

std::string mpirunScript(const Exported& exported, const plan::Plan& plan, Framework framework,
                         const Nodes& nodes) {
  std::string forwarded = " -x MASTER_ADDR -x MASTER_PORT";
  for (const std::string& variable : exported.environment)
    forwarded += " -x " + variable.substr(0, variable.find('='));
  return "#!/bin/bash\n" + header(exported, plan, framework) +
         comment("Run it on the first node; OpenMPI takes the others from --hostfile hosts.") +
         "set -euo pipefail\n" + environment(exported) +
         "export MASTER_ADDR=$(hostname) MASTER_PORT=29500\n" + payload(exported) +
         onNodes(fmt::format("mpirun -np {} --map-by ppr:1:node --bind-to none{}{}", nodes.count,
                             nodes.count > 1 ? " --hostfile hosts" : "", forwarded),
                 exported, framework, nodes, "$OMPI_COMM_WORLD_RANK");
}

}  // namespace

std::string printExport(const Exported& exported, const plan::Plan& plan, Framework framework,
                        Launcher launcher) {
  const Nodes nodes = nodesOf(plan);
  switch (launcher) {
    case Launcher::kTorchrun:
      return onEveryNode(exported, plan, framework, nodes);
    case Launcher::kSlurm:
      return slurmScript(exported, plan, framework, nodes);
    case Launcher::kMpirun:
      return mpirunScript(exported, plan, framework, nodes);
  }
  return "";
}

}  // namespace trireme::codegen
