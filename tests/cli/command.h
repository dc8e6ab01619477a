// Starts the `trireme` command and keeps what it said.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/text.h"

namespace trireme::cli {

struct Outcome {
  int exitCode = -1;
  std::string out, err;
};

// Runs `trireme args...` to its end, without a terminal.
Outcome runTrireme(const std::vector<std::string>& args);

// The command is expected to succeed; its stderr explains if it does not.
void expectSuccess(const Outcome& outcome);
// The command is expected to refuse: exit code, an empty stdout, one line of stderr that begins
// with "error: " and contains every one of `parts`.
void expectRefusal(const Outcome& outcome, int exitCode, const std::vector<std::string>& parts);

// A test with a folder of its own, gone with it, and the specs of a tiny model in it.
class CommandTest : public ::testing::Test {
 protected:
  CommandTest();
  ~CommandTest() override;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // Writes the file and returns its path.
  std::string write(const std::string& name, const std::string& text) const;

  // `trireme plan` on the tiny specs; `more` comes behind.
  Outcome plan(const std::vector<std::string>& more = {}) const;
  // Plans with `pins`, compiles, and returns the bundle's path.
  std::string compile(const std::string& name, const std::vector<std::string>& pins = {}) const;
  // `trireme run` on the tiny text.
  Outcome run(const std::string& bundle, const std::vector<std::string>& more) const;

  std::string model, cluster, training, data;  // paths

 private:
  std::string folder_;
};

std::string readAll(const std::string& path);
// The "loss" of every line of a metrics file.
std::vector<double> lossesIn(const std::string& metricsPath);

extern const char* const kTinyModel;
extern const char* const kTinyCluster;
extern const char* const kTinyTraining;

}  // namespace trireme::cli
