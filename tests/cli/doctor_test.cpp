// What is missing is said, with what it prevents.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cli/doctor/examine.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

class FakeMachine : public Machine {
 public:
  std::vector<std::string> flags = {"fma", "avx2", "avx512f"};
  std::optional<Bytes> memory = Bytes(4.0 * 1024 * 1024 * 1024);
  std::vector<std::string> programs = {"ld", "mpirun", "ptxas"};
  std::optional<GpuDriver> driver =
      GpuDriver{13000, {{"H200", Bytes(151e9)}, {"H200", Bytes(151e9)}}};
  std::map<std::string, int64_t> libraries = {
      {"libnccl.so.2", 22807}, {"libcublasLt.so.12", 120803}, {"libcublasLt.so.13", 130100}};

  std::string cpuName() const override { return "Core"; }
  std::vector<std::string> cpuFlags() const override { return flags; }
  int numCores() const override { return 2; }
  std::optional<Bytes> availableMemory() const override { return memory; }
  std::optional<std::string> findProgram(const std::string& name) const override {
    for (const std::string& program : programs)
      if (program == name) return "/bin/" + name;
    return std::nullopt;
  }
  std::optional<GpuDriver> gpuDriver(std::string& why) const override {
    if (!driver) why = "libcuda.so.1 is not there";
    return driver;
  }
  std::optional<LibraryFile> findLibrary(const std::string& name, const std::string& symbol,
                                         bool byPointer) const override {
    EXPECT_EQ(symbol, byPointer ? "ncclGetVersion" : "cublasLtGetVersion");
    const auto found = libraries.find(name);
    if (found == libraries.end()) return std::nullopt;
    return LibraryFile{"/lib/" + name, found->second};
  }
};

Finding of(const Machine& machine, const std::string& subject) {
  for (Finding& finding : examine(machine))
    if (finding.subject == subject) return finding;
  ADD_FAILURE() << subject;
  return {};
}

TEST(Doctor, FindsEverythingThatIsThere) {
  const FakeMachine machine;
  EXPECT_EQ(of(machine, "CPU").found, "Core, 2 cores, AVX2, AVX-512");
  EXPECT_EQ(of(machine, "memory").found, "4.00 GiB available");
  EXPECT_EQ(of(machine, "linker").found, "/bin/ld");
  EXPECT_EQ(of(machine, "GPU driver").found, "CUDA 13.0; 2 x H200, 140.63 GiB");
  EXPECT_EQ(of(machine, "ptxas").found, "/bin/ptxas");
  EXPECT_EQ(of(machine, "cuBLASLt").found, "13.1.0, /lib/libcublasLt.so.13");
  EXPECT_EQ(of(machine, "NCCL").found, "2.28.7, /lib/libnccl.so.2");
  EXPECT_EQ(of(machine, "MPI").found, "/bin/mpirun");
  for (const Finding& finding : examine(machine)) {
    if (finding.subject == "trireme") continue;  // depends on the build
    EXPECT_EQ(finding.health, Health::kGood) << finding.subject;
    EXPECT_EQ(finding.prevents, "") << finding.subject;
  }
}

TEST(Doctor, SaysWhatEachMissingPiecePrevents) {
  FakeMachine machine;
  machine.flags = {"sse2"};
  machine.memory = std::nullopt;
  machine.programs = {};
  machine.driver = std::nullopt;
  machine.libraries = {};
  EXPECT_THAT(of(machine, "CPU").prevents, HasSubstr("slow"));
  EXPECT_THAT(of(machine, "memory").prevents, HasSubstr("whether a model fits"));
  EXPECT_EQ(of(machine, "linker").health, Health::kMissing);
  EXPECT_THAT(of(machine, "linker").prevents, HasSubstr("trireme compile cannot link"));
  EXPECT_THAT(of(machine, "ptxas").prevents, HasSubstr("PTX alone"));
  EXPECT_EQ(of(machine, "GPU driver").found, "none: libcuda.so.1 is not there");
  for (const char* subject : {"CPU", "memory", "ptxas", "GPU driver", "cuBLASLt", "NCCL", "MPI"})
    EXPECT_EQ(of(machine, subject).health, Health::kOptional) << subject;
  machine.driver = GpuDriver{12040, {}};
  EXPECT_EQ(of(machine, "GPU driver").found, "CUDA 12.4, no device");
  machine.driver->version = 11080;
  EXPECT_EQ(of(machine, "GPU driver").found, "CUDA 11.8, older than 12.0");
  machine.libraries["libnccl.so.2"] = 21403;
  EXPECT_EQ(of(machine, "NCCL").health, Health::kOptional);
  EXPECT_EQ(of(machine, "NCCL").found, "2.14.3, /lib/libnccl.so.2, older than 2.18");
  EXPECT_THAT(of(machine, "NCCL").prevents, HasSubstr("a GPU each"));
}

// The newest that the driver serves, as `run` loads it.
TEST(Doctor, NamesTheCublasLtOfTheDriver) {
  FakeMachine machine;
  machine.driver->version = 12080;
  EXPECT_EQ(of(machine, "cuBLASLt").found, "12.8.3, /lib/libcublasLt.so.12");
  machine.libraries.erase("libcublasLt.so.12");
  EXPECT_EQ(of(machine, "cuBLASLt").health, Health::kOptional);
  EXPECT_EQ(of(machine, "cuBLASLt").found,
            "13.1.0, /lib/libcublasLt.so.13, which needs a driver of CUDA 13; libcublasLt.so.12 "
            "would do");
  machine.driver = std::nullopt;
  EXPECT_EQ(of(machine, "cuBLASLt").found, "13.1.0, /lib/libcublasLt.so.13");
  machine.libraries = {};
  EXPECT_EQ(of(machine, "cuBLASLt").found,
            "no libcublasLt.so.13 or libcublasLt.so.12, in the loader's folders or "
            "LD_LIBRARY_PATH");
}

TEST(Doctor, TheCommandAgreesWithItsExitCode) {
  const Outcome outcome = runTrireme({"doctor", "--json"});
  const nlohmann::json findings = nlohmann::json::parse(outcome.out).at("findings");
  bool isMissing = false;
  for (const nlohmann::json& finding : findings) {
    isMissing |= finding.at("health") == "missing";
    EXPECT_EQ(finding.at("health") == "good", finding.at("prevents") == "");
  }
  EXPECT_EQ(outcome.exitCode, isMissing ? 1 : 0);
  EXPECT_EQ(findings.size(), 9u);
  EXPECT_THAT(runTrireme({"doctor"}).out, HasSubstr("\nlinker        "));
}

}  // namespace
}  // namespace trireme::cli
