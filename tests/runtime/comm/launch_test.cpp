#include "runtime/comm/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace trireme::runtime {
namespace {

using ::testing::HasSubstr;

Environment of(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Launch launchFrom(const std::map<std::string, std::string>& variables) {
  const auto launch = detectLaunch(of(variables));
  EXPECT_TRUE(launch.has_value()) << launch.error().message();
  if (!launch.has_value() || !launch->has_value()) return {};
  return **launch;
}

std::string launchError(const std::map<std::string, std::string>& variables) {
  const auto launch = detectLaunch(of(variables));
  return launch.has_value() ? "" : launch.error().message();
}

TEST(Launch, NoLauncherAndOneOfASingleProcessAreNobody) {
  EXPECT_FALSE(detectLaunch(of({}))->has_value());
  EXPECT_FALSE(detectLaunch(of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}))->has_value());
  // A batch script, before srun: the job has tasks, but this is none of them.
  EXPECT_FALSE(detectLaunch(of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}))->has_value());
}

TEST(Launch, TorchrunIsReadAndItsOwnPortLeftAlone) {
  std::map<std::string, std::string> variables = {{"RANK", "5"},
                                                  {"WORLD_SIZE", "16"},
                                                  {"LOCAL_RANK", "1"},
                                                  {"MASTER_ADDR", "node7"},
                                                  {"MASTER_PORT", "29400"}};
  Launch launch = launchFrom(variables);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.numProcesses, 16);
  EXPECT_EQ(launch.rankOnMachine, 1);
  EXPECT_EQ(launch.host, "node7");
  EXPECT_EQ(launch.port, 29400);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(launchFrom(variables).port, 29401);
}

TEST(Launch, SrunIsReadAndItsFirstMachineListens) {
  const Launch launch = launchFrom({{"SLURM_PROCID", "3"},
                                    {"SLURM_NTASKS", "8"},
                                    {"SLURM_LOCALID", "3"},
                                    {"SLURM_STEP_ID", "2"},
                                    {"SLURM_JOB_ID", "1234567"},
                                    {"SLURM_STEP_NODELIST", "gpu[07-08]"}});
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.host, "gpu07");
  EXPECT_EQ(launch.port, 20000 + 4569);
  // A step of fewer tasks than its job has.
  const Launch step = launchFrom({{"SLURM_PROCID", "3"},
                                  {"SLURM_NTASKS", "8"},
                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                  {"SLURM_STEP_ID", "2"},
                                  {"SLURM_JOB_NODELIST", "gpu[07-08]"}});
  EXPECT_EQ(step.numProcesses, 4);
}

TEST(Launch, MpirunIsReadWhetherOpenMpiOrHydra) {
  const Launch open = launchFrom({{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(open.launcher, "mpirun");
  EXPECT_EQ(open.rankOnMachine, 2);
  EXPECT_EQ(open.host, "127.0.0.1");
  EXPECT_EQ(open.port, 29500);
  const Launch hydra = launchFrom({{"PMI_RANK", "1"},
                                   {"PMI_SIZE", "2"},
                                   {"MPI_LOCALRANKID", "0"},
                                   {"MASTER_ADDR", "a"},
                                   {"MASTER_PORT", "77"}});
  EXPECT_EQ(hydra.rank, 1);
  EXPECT_EQ(hydra.port, 77);
}

// mpirun within a job of Slurm: its daemon is srun's task, its processes are mpirun's.
TEST(Launch, TheInnerLauncherCounts) {
  const Launch launch = launchFrom({{"OMPI_COMM_WORLD_RANK", "2"},
                                    {"OMPI_COMM_WORLD_SIZE", "4"},
                                    {"SLURM_PROCID", "0"},
                                    {"SLURM_NTASKS", "2"},
                                    {"SLURM_STEP_ID", "0"},
                                    {"MASTER_ADDR", "x"}});
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.numProcesses, 4);
}

TEST(Launch, WhatIsMissingOrMalformedIsNamed) {
  EXPECT_THAT(launchError({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("RANK is '4', not a number from 0 to 3"));
  EXPECT_THAT(launchError({{"RANK", "0"}, {"WORLD_SIZE", "four"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("WORLD_SIZE is 'four'"));
  EXPECT_THAT(launchError({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(
      launchError(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", "70000"}}),
      HasSubstr("MASTER_PORT is '70000'"));
}

// Each of the processes would else train everything on its own.
TEST(Launch, OneOfTwoVariablesIsAnError) {
  EXPECT_EQ(launchError({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is set and RANK is not, and torchrun sets both: set RANK, or unset "
            "WORLD_SIZE to train in one process");
  EXPECT_THAT(launchError({{"RANK", "0"}, {"LOCAL_RANK", "0"}}),
              HasSubstr("RANK is set and WORLD_SIZE is not, and torchrun sets both"));
  EXPECT_THAT(launchError({{"OMPI_COMM_WORLD_RANK", "0"}}),
              HasSubstr("OMPI_COMM_WORLD_RANK is set and OMPI_COMM_WORLD_SIZE is not"));
  EXPECT_THAT(launchError({{"PMI_SIZE", "4"}}), HasSubstr("PMI_SIZE is set and PMI_RANK is not"));
}

// What shells inherit: a size of one, an empty variable, a batch script's own beside srun's, an
// interactive step of a job of several tasks.
TEST(Launch, WhatShellsInheritIsNobody) {
  EXPECT_FALSE(detectLaunch(of({{"WORLD_SIZE", "1"}}))->has_value());
  EXPECT_FALSE(detectLaunch(of({{"WORLD_SIZE", ""}}))->has_value());
  EXPECT_FALSE(detectLaunch(of({{"MASTER_ADDR", "x"}, {"MASTER_PORT", "1"}}))->has_value());
  EXPECT_FALSE(detectLaunch(of({{"SLURM_PROCID", "0"},
                                {"SLURM_NTASKS", "8"},
                                {"SLURM_STEP_NUM_TASKS", "1"},
                                {"SLURM_STEP_ID", "4294967290"}}))
                   ->has_value());
  EXPECT_EQ(launchFrom({{"WORLD_SIZE", "8"},
                        {"SLURM_PROCID", "3"},
                        {"SLURM_NTASKS", "8"},
                        {"SLURM_STEP_ID", "0"},
                        {"MASTER_ADDR", "x"}})
                .launcher,
            "srun");
}

TEST(Launch, OfASingleProcessIsALauncher) {
  EXPECT_TRUE(hasLauncher(of({{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
  EXPECT_FALSE(hasLauncher(of({{"WORLD_SIZE", "1"}})));
  EXPECT_FALSE(hasLauncher(of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}})));
}

TEST(Launch, ARendezvousOfTheUsersComesFirst) {
  const auto environment = withRendezvous(of({{"RANK", "0"},
                                              {"WORLD_SIZE", "2"},
                                              {"MASTER_ADDR", "x"},
                                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
                                          "[::1]:4000");
  ASSERT_TRUE(environment.has_value());
  const auto launch = detectLaunch(*environment);
  EXPECT_EQ((*launch)->host, "::1");
  EXPECT_EQ((*launch)->port, 4000);
  for (const char* bad : {"host", "host:", ":80", "host:0", "host:99999", "host:8o"})
    EXPECT_FALSE(withRendezvous(of({}), bad).has_value()) << bad;
}

TEST(Launch, TheFirstHostOfSlurmsLists) {
  EXPECT_EQ(firstHost("node1"), "node1");
  EXPECT_EQ(firstHost("node1,node2"), "node1");
  EXPECT_EQ(firstHost("node[03-07,9],login"), "node03");
  EXPECT_EQ(firstHost("rack2-[5,8]"), "rack2-5");
  EXPECT_EQ(firstHost("n[1-2].cluster"), "n1.cluster");
  EXPECT_EQ(firstHost("n[1-2]-ib,m"), "n1-ib");
  EXPECT_EQ(firstHost("n["), "");
  EXPECT_EQ(firstHost(""), "");
}

}  // namespace
}  // namespace trireme::runtime
