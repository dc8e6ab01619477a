#include "codegen/import/script_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/plan/plan.h"

namespace trireme::codegen {
namespace {

constexpr size_t kMostWays = 200;
// Open conditions of one line that are told apart; those of a loop's further rounds are taken
// alike.
constexpr int kMostOfALine = 4;

// Of two ways to the same plan. On the hosts of the cluster it is priced either way.
void mergeHosts(const Imported& other, Imported& first) {
  const bool isSaid = other.ranksPerHost > 0 && first.ranksPerHost > 0;
  if (isSaid && other.ranksPerHost != first.ranksPerHost)
    first.notes.push_back(fmt::format(
        "launches {} or {} ranks on each host, as a condition says that cannot be evaluated here",
        first.ranksPerHost, other.ranksPerHost));
  first.ranksPerHost = isSaid && other.ranksPerHost != first.ranksPerHost
                           ? 0
                           : std::max(first.ranksPerHost, other.ranksPerHost);
}

}  // namespace

std::optional<std::vector<size_t>> Ways::next() {
  if (!error_.ok() || open_.empty()) return std::nullopt;
  if (++numWays_ > kMostWays) {
    error_ = invalidArgument(
        fmt::format("{}: has too many conditions that cannot be evaluated here: give the command "
                    "line that Megatron prints",
                    file_));
    return std::nullopt;
  }
  current_ = std::move(open_.back());
  open_.pop_back();
  return current_;
}

void Ways::add(const ShellRun& run, const Result<std::optional<Imported>>& imported) {
  std::vector<size_t> before;
  std::map<int, int> numOfLine;
  for (size_t i = 0; i < run.decisions.size(); ++i) {
    const ShellDecision& decision = run.decisions[i];
    const int place =
        decision.line * kMostOfALine + std::min(numOfLine[decision.line]++, kMostOfALine - 1);
    taken_.insert({place, decision.choice});
    for (size_t choice = 0; i >= current_.size() && choice < decision.choices; ++choice) {
      if (!taken_.insert({place, choice}).second) continue;
      open_.push_back(before);
      open_.back().push_back(choice);
    }
    before.push_back(decision.choice);
  }
  if (imported.has_value() && !*imported) return;  // launches nothing
  if (!first_) {
    first_ = imported;
    return;
  }
  Result<std::optional<Imported>>& first = *first_;
  if (!imported.has_value() && !first.has_value()) return;
  if (imported.has_value() && first.has_value()) {
    if (plan::printPlan((*imported)->plan) == plan::printPlan((*first)->plan))
      return mergeHosts(**imported, **first);
  }
  const int line = run.decisions.size() >= current_.size() && !current_.empty()
                       ? run.decisions[current_.size() - 1].line
                       : 1;
  const Status why = !imported.has_value() ? imported.error()
                     : !first.has_value()  ? first.error()
                                           : Status();
  error_ = invalidArgument(
      fmt::format("{}:{}: the plan depends on this condition, which cannot be evaluated here: "
                  "write out what it chooses{}",
                  file_, line, why.ok() ? "" : fmt::format(" (one way: {})", why.message())));
}

Result<std::optional<Imported>> Ways::result() const {
  if (!error_.ok()) return Error(error_);
  if (!first_) return std::nullopt;
  return *first_;
}

}  // namespace trireme::codegen
