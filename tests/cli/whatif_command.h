// Sweeps of a small model, by the command.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.h"

namespace trireme::cli {

class WhatifCommand : public CommandTest {
 protected:
  Outcome whatif(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {"whatif", "--model", model,   "--cluster",
                                     cluster,  "--train", training};
    args.insert(args.end(), more.begin(), more.end());
    return runTrireme(args);
  }
  std::string sweep(const std::vector<std::string>& more, const std::string& name) const {
    std::vector<std::string> args = {"--gpus", "1..8", "--batch", "8,16", "--csv"};
    args.insert(args.end(), more.begin(), more.end());
    args.insert(args.end(), {"-o", path(name)});
    expectSuccess(whatif(args));
    return readAll(path(name));
  }
};

inline nlohmann::json jsonOf(const Outcome& outcome) {
  expectSuccess(outcome);
  return nlohmann::json::parse(outcome.out);
}

}  // namespace trireme::cli
