// The commands of a full build.
#include "cli/commands.h"

namespace trireme::cli {

std::vector<const Command*> allCommands() {
  return {&kPlanCommand,           &kWhatifCommand,        &kCompileCommand,   &kRunCommand,
          &kExportCommand,         &kExportWeightsCommand, &kCalibrateCommand, &kDoctorCommand,
          &kPackageRuntimeCommand, &kCompletionCommand,    &kManCommand};
}

std::string_view exampleOfAll() {
  return "trireme plan --model gpt.yaml --cluster dgx.yaml --batch 512 --seq 2048";
}

}  // namespace trireme::cli
