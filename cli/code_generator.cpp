#include "cli/code_generator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "ir/base/version.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

Result<fs::path> generatorPath() {
  std::error_code code;
  const fs::path folder = fs::read_symlink("/proc/self/exe", code).parent_path();
  if (code)
    return Error(
        unavailable("where this command lies is unknown (/proc/self/exe): " + code.message()));
  for (const fs::path& candidate : {folder, folder.parent_path() / "lib/trireme"})
    if (fs::exists(candidate / codegen::kGeneratorFile, code))
      return candidate / codegen::kGeneratorFile;
  return Error(unavailable(
      fmt::format("there is no code generator: {} is neither in {} nor in ../lib/trireme; builds "
                  "with TRIREME_MLIR=OFF have none",
                  codegen::kGeneratorFile, folder.string())));
}

Result<const codegen::Generator*> load() {
  TRIREME_ASSIGN_OR_RETURN(const fs::path path, generatorPath());
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Error(unavailable(fmt::format("the code generator cannot be loaded: {}", dlerror())));
  const auto* generator =
      static_cast<const codegen::Generator*>(dlsym(library, codegen::kGeneratorSymbol));
  if (generator == nullptr)
    return Error(unavailable(fmt::format("{} is no code generator: {}", path.string(), dlerror())));
  if (std::string_view(generator->build) != kBuild)
    return Error(unavailable(
        fmt::format("{} belongs to trireme {}, and this is {}; build or install both together",
                    path.string(), generator->build, kBuild)));
  return generator;
}

}  // namespace

Result<const codegen::Generator*> loadCodeGenerator() {
  static const Result<const codegen::Generator*> generator = load();
  return generator;
}

}  // namespace trireme::cli
