#include "codegen/import/megatron_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "codegen/import/words.h"

namespace trireme::codegen {
namespace {

constexpr std::string_view kMark = "--micro-batch-size";
constexpr std::array<std::string_view, 3> kSlurm = {"srun", "sbatch", "salloc"};
constexpr std::array<std::string_view, 4> kMpi = {"mpirun", "mpiexec", "mpiexec.hydra", "orterun"};
constexpr std::array<std::string_view, 3> kElastic = {"torchrun", "deepspeed", "accelerate"};

bool hasMark(const ShellLaunch& launch) {
  return std::any_of(launch.words.begin(), launch.words.end(), [](const ShellText& word) {
    return word.text == kMark || word.text.starts_with(std::string(kMark) + "=");
  });
}

bool hidesMark(const ShellLaunch& launch) {
  return std::any_of(launch.words.begin(), launch.words.end(), [](const ShellText& word) {
    return word.text.find(kMark) != std::string::npos &&
           word.text.find_first_of(" \t\n") != std::string::npos;
  });
}

bool isModuleOfTorch(std::string_view text) { return text.starts_with("torch.distributed"); }

bool mayLaunch(const ShellLaunch& launch) {
  const std::vector<ShellText>& words = launch.words;
  if (words[launch.command].text.starts_with(kOpenBegin)) return true;
  return std::any_of(words.begin(), words.end(), [](const ShellText& word) {
    const std::string_view base = baseName(word.text);
    return isIn(kElastic, base) || isModuleOfTorch(word.text) ||
           (base.starts_with("pretrain") && base.ends_with(".py"));
  });
}

// Words by the program that reads them.
MegatronLaunch split(const ShellLaunch& launch) {
  enum class Owner : uint8_t { kOther, kSlurm, kMpi, kLauncher, kProgram };
  MegatronLaunch made;
  made.line = launch.line;
  made.kernelVariables = launch.kernelVariables;
  Owner owner = Owner::kOther;
  const std::vector<ShellText>& words = launch.words;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    const std::string_view base = baseName(text);
    const bool isModule = text == "-m" && i + 1 < words.size();
    if (owner == Owner::kProgram) {
      made.program.push_back(words[i]);
    } else if (text.starts_with("NVTE_")) {  // of env, or behind mpirun -x
      made.kernelVariables.push_back(words[i]);
    } else if (isIn(kSlurm, base)) {
      owner = Owner::kSlurm;
    } else if (isIn(kMpi, base)) {
      owner = Owner::kMpi;
    } else if (isIn(kElastic, base) || (isModule && isModuleOfTorch(words[i + 1].text))) {
      owner = Owner::kLauncher;
      made.hasLauncher = true;
      i += isModule;
    } else if (isModule || (base.ends_with(".py") && base[0] != '-')) {
      owner = Owner::kProgram;
      i += isModule;
    } else if (base.starts_with("python") || base == "bash" || base == "sh" || base == "env") {
      if (owner != Owner::kLauncher) owner = Owner::kOther;
    } else if (owner != Owner::kOther) {
      (owner == Owner::kSlurm ? made.slurm
       : owner == Owner::kMpi ? made.mpi
                              : made.launcher)
          .push_back(words[i]);
    }
  }
  if (owner != Owner::kProgram) {
    made.program = words;
    made.launcher.clear();
  }
  return made;
}

Error fail(const std::string& file, int line, const std::string& message) {
  return Error(invalidArgument(fmt::format("{}:{}: {}", file, line, message)));
}

}  // namespace

Result<std::optional<MegatronLaunch>> findMegatron(const ShellRun& run, const std::string& file) {
  const ShellLaunch* found = nullptr;
  const ShellLaunch* candidate = nullptr;
  const ShellLaunch* flags = nullptr;
  for (const ShellLaunch& launch : run.launches) {
    if (launch.words[0].text.starts_with("--")) flags = flags ? flags : &launch;
    if (hidesMark(launch))
      return fail(file, launch.line,
                  "a command in quotes or in a here-document is not followed: write it out, or "
                  "give the script that it is");
    if (!candidate && mayLaunch(launch)) candidate = &launch;
    if (!hasMark(launch) || (flags && flags == &run.launches[0])) continue;
    if (launch.loopLine > 0)
      return fail(file, launch.line,
                  fmt::format("is in the loop of line {}, which launches several: write one of "
                              "them out",
                              launch.loopLine));
    if (found)
      return fail(file, launch.line,
                  fmt::format("a second command with {} beside that of line {}: give one of them",
                              kMark, found->line));
    found = &launch;
  }
  if (flags && flags == &run.launches[0]) {  // a list of arguments, on one line or on many
    ShellLaunch all{{}, flags->line, 0, 0, {}};
    for (const ShellLaunch& launch : run.launches)
      all.words.insert(all.words.end(), launch.words.begin(), launch.words.end());
    return split(all);
  }
  if (flags && (found || candidate))
    return fail(file, flags->line,
                fmt::format("a command begins with {}: a backslash is missing at the end of the "
                            "line before",
                            shownShell(flags->words[0].text)));
  if (!found) found = candidate;
  if (!found) return std::nullopt;
  return split(*found);
}

}  // namespace trireme::codegen
