#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>

#include "codegen/emit/emit.h"

namespace trireme::codegen {
namespace {

// An empty temporary file that is removed with the object.
struct TemporaryFile {
  llvm::SmallString<128> path;
  llvm::FileRemover remover;

  bool create(llvm::StringRef suffix) {
    if (llvm::sys::fs::createTemporaryFile("trireme-kernels", suffix, path)) return false;
    remover.setFile(path);
    return true;
  }
};

bool writeFile(llvm::StringRef path, const std::string& bytes) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (error) return false;
  stream << bytes;
  stream.close();
  const bool ok = !stream.has_error();
  stream.clear_error();
  return ok;
}

std::string readFile(llvm::StringRef path) {
  const auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

}  // namespace

Result<std::string> linkSharedObject(const std::string& object) {
  const auto linker = llvm::sys::findProgramByName("ld");
  if (!linker) return Error(unavailable("no linker: 'ld' is not on the path (package binutils)"));
  TemporaryFile input, output, messages;
  if (!input.create("o") || !output.create("so") || !messages.create("txt") ||
      !writeFile(input.path, object))
    return Error(resourceExhausted("cannot write the object file to the temporary folder"));
  const std::vector<llvm::StringRef> arguments = {
      *linker,       "-shared", "--strip-all", "--hash-style=gnu", "-z",
      "noexecstack", "-o",      output.path,   input.path};
  const std::optional<llvm::StringRef> redirects[] = {std::nullopt, messages.path.str(),
                                                      messages.path.str()};
  const int code = llvm::sys::ExecuteAndWait(*linker, arguments, std::nullopt, redirects);
  if (code != 0)
    return Error(unavailable("the linker failed: " + *linker + ": " + readFile(messages.path)));
  return readFile(output.path);
}

}  // namespace trireme::codegen
