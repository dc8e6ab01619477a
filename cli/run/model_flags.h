// The flags of `trireme run` for which the model or the plan has to be read as the user wrote it.
// A build of the runtime alone cannot: there checkModelFlags() refuses them
// (cli/full, cli/runtime_only), and the others have nothing to do.
#pragma once
#include <string>
#include <vector>

#include "cli/run/report.h"
#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "ir/program/trace.h"
#include "runtime/session.h"

namespace trireme::cli {

// Paths and names; empty: not given.
struct ModelFlags {
  std::string cluster, stack;  // --cluster, --stack: the step that is predicted
  std::string initFrom;        // --init-from: weights of other software
  std::string report;          // --report: HTML
  bool speaks = true;          // notes on stderr; false where another process says them
};

// kUnavailable: this build cannot do what a flag asks for; names it.
Status checkModelFlags(const ModelFlags& flags);

// Fills in the predicted step, and for --report its timeline. Nothing to do without --cluster.
// Errors: those of reading the bundle's plan and model, the cluster and the stack.
Status predict(const ModelFlags& flags, const program::Bundle& bundle,
               const std::string& bundleFolder, RunReport& report);

// Starts from weights of other software instead of drawing them, if --init-from says so, and says
// it. `modelText` is the bundle's. kInvalidArgument: they are not the model's; says what differs.
Status initialiseFrom(const ModelFlags& flags, runtime::Session& session,
                      const std::string& modelText);

// Writes the page, if --report says so, with the timeline of the last step of `events`, if there
// are any. Errors: those of writeFile.
Status writeRunReport(const ModelFlags& flags, RunReport& report, const program::Program& program,
                      const std::vector<program::TraceEvent>& events);

}  // namespace trireme::cli
