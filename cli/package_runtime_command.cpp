// trireme package-runtime: what a GPU node needs to build `trireme run`, as one archive.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/paths.h"
#include "cli/write_file.h"
#include "ir/base/format.h"
#include "ir/base/version.h"
#include "ir/program/bundle.h"
#include "ir/spec/document.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// In the archive everything lies in this folder.
constexpr const char* kRoot = "trireme-runtime";
// What --tests adds of this repository.
constexpr const char* kTestFolders[] = {"tests/gpu", "tests/support", "bench/gpu"};

struct PackageOptions {
  std::string output, source = TRIREME_SOURCE_FOLDER;
  std::vector<std::string> bundles;
  bool tests = false;
};

// A folder of this process that is gone with the object.
class StagingFolder {
 public:
  StagingFolder() {
    std::string name = (fs::temp_directory_path() / "trireme-package-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~StagingFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  const fs::path& path() const { return path_; }  // empty: could not be made

 private:
  fs::path path_;
};

// A file or a whole folder.
Status copyInto(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy(from, to, fs::copy_options::recursive, error);
  if (!error) return {};
  return unavailable(fmt::format("cannot pack {}: {}", from.string(), error.message()));
}

// The lines of cmake/runtime_package.txt that name something.
Result<std::vector<std::string>> packedPaths(const PackageOptions& options) {
  const fs::path list = fs::path(options.source) / "cmake/runtime_package.txt";
  std::ifstream file(list);
  if (!file)
    return Error(unavailable(
        fmt::format("{} is not there: the sources that this trireme was built from have moved; "
                    "--source names a folder of the same sources",
                    list.string())));
  std::vector<std::string> paths;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') paths.push_back(line);
  if (options.tests) paths.insert(paths.end(), std::begin(kTestFolders), std::end(kTestFolders));
  return paths;
}

struct ThirdParty {
  const char* include;  // folder that holds the next
  const char* headers;
  const char* licence;
};
constexpr ThirdParty kThirdParty[] = {
    {TRIREME_INCLUDE_FMT, "fmt", "/usr/share/doc/libfmt-dev/copyright"},
    {TRIREME_INCLUDE_NLOHMANN, "nlohmann", "/usr/share/doc/nlohmann-json3-dev/copyright"},
    {TRIREME_INCLUDE_TL, "tl", "/usr/share/doc/libexpected-dev/copyright"},
    {TRIREME_INCLUDE_CLI, "CLI", "/usr/share/doc/libcli11-dev/copyright"}};

Status copyThirdParty(const PackageOptions& options, const fs::path& root) {
  for (const ThirdParty& part : kThirdParty) {
    TRIREME_RETURN_IF_ERROR(copyInto(fs::path(part.include) / part.headers,
                                     root / "third_party/include" / part.headers));
    if (fs::exists(part.licence))
      TRIREME_RETURN_IF_ERROR(copyInto(part.licence, root / "third_party/licences" / part.headers));
  }
  if (!options.tests) return {};
  const fs::path googleTest(TRIREME_GTEST_SOURCES);
  if (!fs::exists(googleTest / "googletest/src/gtest-all.cc"))
    return unavailable(
        "--tests: GoogleTest's sources are missing: install Debian's googletest and configure "
        "again, or set TRIREME_GTEST_SOURCES to a folder with googletest/ and googlemock/");
  for (const char* part :
       {"googletest/include", "googletest/src", "googlemock/include", "googlemock/src"})
    TRIREME_RETURN_IF_ERROR(copyInto(googleTest / part, root / "third_party/googletest" / part));
  return {};
}

Status copyBundles(const PackageOptions& options, const fs::path& root) {
  std::set<std::string> names;
  for (const std::string& bundle : options.bundles) {
    if (!program::isBundle(bundle))
      return invalidArgument(fmt::format("--bundle {}: not a bundle of `trireme compile`", bundle));
    const std::string name = fs::path(bundle + "/.").lexically_normal().parent_path().filename();
    if (!names.insert(name).second)
      return invalidArgument(fmt::format("--bundle: two bundles are named {}", name));
    TRIREME_RETURN_IF_ERROR(copyInto(bundle, root / "bundles" / name));
  }
  return {};
}

// tar, found in PATH; its own complaints go to stderr.
Status runTar(const fs::path& folder, const std::string& output) {
  const std::string from = folder.string();
  const char* const arguments[] = {"tar",          "-C",        from.c_str(), "-czf",
                                   output.c_str(), "--owner=0", "--group=0",  "--numeric-owner",
                                   kRoot,          nullptr};
  const pid_t child = fork();
  if (child < 0) return unavailable("cannot start tar");
  if (child == 0) {
    execvp("tar", const_cast<char* const*>(arguments));
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return unavailable("tar failed");
  if (WEXITSTATUS(status) == 127)
    return unavailable("there is no tar in PATH (Debian: tar), which writes the archive");
  if (WEXITSTATUS(status) != 0) return unavailable(fmt::format("tar could not write {}", output));
  return {};
}

Status checkPaths(const PackageOptions& options) {
  std::vector<NamedPath> inputs;
  for (const std::string& bundle : options.bundles) inputs.push_back({"--bundle", bundle, true});
  TRIREME_RETURN_IF_ERROR(checkOutputs(inputs, {{"-o", options.output}}));
  return checkWritable(options.output);
}

Result<int> runPackage(const PackageOptions& options) {
  TRIREME_RETURN_IF_ERROR(checkPaths(options));
  const StagingFolder staging;
  if (staging.path().empty())
    return Error(unavailable("no folder can be made in " + fs::temp_directory_path().string()));
  const fs::path root = staging.path() / kRoot;
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> paths, packedPaths(options));
  for (const std::string& path : paths)
    TRIREME_RETURN_IF_ERROR(copyInto(fs::path(options.source) / path, root / path));
  TRIREME_RETURN_IF_ERROR(copyThirdParty(options, root));
  TRIREME_RETURN_IF_ERROR(copyBundles(options, root));
  TRIREME_RETURN_IF_ERROR(
      writeFile((root / "packed_description.txt").string(), std::string(kGitDescription) + "\n"));
  const fs::path packed = staging.path() / "archive.tar.gz";
  TRIREME_RETURN_IF_ERROR(runTar(staging.path(), packed.string()));
  std::error_code error;
  TRIREME_ASSIGN_OR_RETURN(const std::string archive,
                           spec::readFile(packed.string(), fs::file_size(packed, error)));
  TRIREME_RETURN_IF_ERROR(writeFile(options.output, archive));
  const Bytes bytes(static_cast<double>(archive.size()));
  fmt::print("{:<14}{}, {}\n", "archive", options.output, formatBytes(bytes));
  fmt::print(
      "{:<14}tar -xzf {} && cmake -S {} -B build -DCMAKE_BUILD_TYPE=Release "
      "-DTRIREME_RUNTIME_ONLY=ON && cmake --build build -j\n",
      "to build", options.output, kRoot);
  return kExitOk;
}

Action addPackage(CLI::App& app) {
  auto options = std::make_shared<PackageOptions>();
  addPath(app, "-o,--output", &options->output, "FILE", "Archive to write: .tar.gz")->required();
  addPaths(app, "--bundle", &options->bundles, "BUNDLE", "Bundles to take along, into bundles/");
  app.add_flag("--tests", options->tests,
               "Take along the tests and benchmarks for GPUs, and GoogleTest");
  addPath(app, "--source", &options->source, "DIR",
          "Sources to pack (default: those of this build)");
  return [options] { return runPackage(*options); };
}

}  // namespace

const Command kPackageRuntimeCommand = {
    "package-runtime", "Pack what a GPU node needs to build `trireme run`",
    "trireme package-runtime -o trireme-runtime.tar.gz --bundle gpt.bundle", addPackage};

}  // namespace trireme::cli
