#include <llvm/ADT/SmallString.h>
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/Path.h>
#include <llvm/Support/Program.h>
#include <llvm/Support/raw_ostream.h>

#include <functional>

#include "codegen/emit/emit.h"

namespace trireme::codegen {
namespace {

// An empty temporary file that is removed with the object.
struct TemporaryFile {
  llvm::SmallString<128> path;
  llvm::FileRemover remover;

  std::error_code create(llvm::StringRef suffix) {
    if (const std::error_code error =
            llvm::sys::fs::createTemporaryFile("trireme-kernels", suffix, path))
      return error;
    remover.setFile(path);
    return {};
  }
};

std::error_code writeFile(llvm::StringRef path, const std::string& bytes) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (error) return error;
  stream << bytes;
  stream.close();
  error = stream.error();
  stream.clear_error();
  return error;
}

std::string readFile(llvm::StringRef path) {
  const auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

Status temporaryFolderFailed(const std::error_code& error) {
  llvm::SmallString<128> folder;
  llvm::sys::path::system_temp_directory(true, folder);
  return resourceExhausted("cannot write to the temporary folder " + folder.str().str() + ": " +
                           error.message() + "; TMPDIR names another");
}

// Runs a program that turns `input` into a file, and says into `messages` what it said.
struct Outcome {
  int code = -1;
  std::string output, messages;
};
Result<Outcome> convert(
    const std::string& program, llvm::StringRef suffix, const std::string& input,
    const std::function<std::vector<std::string>(const std::string& from, const std::string& to)>&
        argumentsFor) {
  TemporaryFile from, to, messages;
  std::error_code error = from.create(suffix);
  if (!error) error = to.create("out");
  if (!error) error = messages.create("txt");
  if (!error) error = writeFile(from.path, input);
  if (error) return Error(temporaryFolderFailed(error));
  const std::vector<std::string> words = argumentsFor(from.path.str().str(), to.path.str().str());
  std::vector<llvm::StringRef> arguments = {program};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const std::optional<llvm::StringRef> redirects[] = {std::nullopt, messages.path.str(),
                                                      messages.path.str()};
  const int code = llvm::sys::ExecuteAndWait(program, arguments, std::nullopt, redirects);
  return Outcome{code, code == 0 ? readFile(to.path) : "", readFile(messages.path)};
}

}  // namespace

Result<std::string> linkSharedObject(const std::string& object) {
  const auto linker = llvm::sys::findProgramByName("ld");
  if (!linker) return Error(unavailable("no linker: 'ld' is not on the path (package binutils)"));
  TRIREME_ASSIGN_OR_RETURN(
      Outcome outcome,
      convert(*linker, "o", object, [](const std::string& from, const std::string& to) {
        return std::vector<std::string>{
            "-shared", "--strip-all", "--hash-style=gnu", "-z", "noexecstack", "-o", to, from};
      }));
  if (outcome.code != 0)
    return Error(unavailable("the linker failed: " + *linker + ": " + outcome.messages));
  return std::move(outcome.output);
}

Result<std::string> assembleCubin(const std::string& ptx, const std::string& processor) {
  auto assembler = llvm::sys::findProgramByName("ptxas");
  if (!assembler) assembler = llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"});
  if (!assembler) return std::string();
  TRIREME_ASSIGN_OR_RETURN(
      Outcome outcome,
      convert(*assembler, "ptx", ptx, [&](const std::string& from, const std::string& to) {
        return std::vector<std::string>{"-arch=" + processor, "-o", to, from};
      }));
  if (outcome.code != 0)
    return Error(internalError(*assembler + " refuses generated code: " + outcome.messages));
  return std::move(outcome.output);
}

}  // namespace trireme::codegen
