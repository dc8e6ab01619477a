// The flags of `run` that the runtime alone cannot serve.
#include "cli/run/model_flags.h"

#include <fmt/format.h>

#include <utility>

namespace trireme::cli {

Status checkModelFlags(const ModelFlags& flags) {
  for (const auto& [flag, value] :
       {std::pair{"--cluster", &flags.cluster}, std::pair{"--stack", &flags.stack},
        std::pair{"--init-from", &flags.initFrom}, std::pair{"--report", &flags.report}})
    if (!value->empty())
      return unavailable(
          fmt::format("{}: this trireme is the runtime alone, which reads bundles and no models or "
                      "plans; a full build (without TRIREME_RUNTIME_ONLY) has it",
                      flag));
  return {};
}

Status predict(const ModelFlags&, const program::Bundle&, const std::string&, RunReport&) {
  return {};
}
Status initialiseFrom(const ModelFlags&, runtime::Session&, const std::string&) { return {}; }
Status writeRunReport(const ModelFlags&, RunReport&, const program::Program&,
                      const std::vector<program::TraceEvent>&) {
  return {};
}

}  // namespace trireme::cli
