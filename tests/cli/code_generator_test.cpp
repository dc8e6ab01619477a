#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class CodeGenerator : public CommandTest {
 protected:
  // Standard output and errors of a shell's command.
  std::string outputOf(const std::string& command) const {
    std::system((command + " > " + path("output") + " 2>&1").c_str());
    return readAll(path("output"));
  }
};

// The dynamic linker lists what a program needs instead of starting it.
TEST_F(CodeGenerator, IsNoPartOfTheCommand) {
  const std::string needed = outputOf("LD_TRACE_LOADED_OBJECTS=1 " TRIREME_BINARY);
  EXPECT_THAT(needed, HasSubstr("libc.so"));
  EXPECT_THAT(needed, Not(HasSubstr("LLVM")));
  EXPECT_THAT(needed, Not(HasSubstr("MLIR")));
}

// The command alone, as it may be copied to another machine.
TEST_F(CodeGenerator, IsMissedOnlyByWhatCompiles) {
  fs::create_directory(path("bin"));
  const std::string copy = path("bin/trireme");
  fs::copy_file(TRIREME_BINARY, copy);
  const std::string planned = outputOf(copy + " plan --model " + model + " --cluster " + cluster +
                                       " --train " + training + " -o " + path("p.yaml"));
  EXPECT_TRUE(fs::exists(path("p.yaml"))) << planned;
  const std::string compile =
      copy + " compile --model " + model + " --plan " + path("p.yaml") + " -o " + path("b");
  EXPECT_THAT(outputOf(compile),
              HasSubstr("there is no code generator: libtrireme_generator.so is neither in " +
                        path("bin") + " nor in ../lib/trireme"));
  EXPECT_FALSE(fs::exists(path("b")));

  fs::create_directories(path("lib/trireme"));
  write("lib/trireme/libtrireme_generator.so", "no library");
  EXPECT_THAT(outputOf(compile), HasSubstr("the code generator cannot be loaded: "));
#if TRIREME_HAVE_MLIR
  fs::copy_file(fs::path(TRIREME_BINARY).parent_path() / "libtrireme_generator.so",
                path("lib/trireme/libtrireme_generator.so"), fs::copy_options::overwrite_existing);
  const std::string compiled = outputOf(compile);
  EXPECT_TRUE(fs::exists(path("b/manifest.json"))) << compiled;
#endif
}

}  // namespace
}  // namespace trireme::cli
