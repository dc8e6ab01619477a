#include "runtime/executor/segment_code.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ir/base/format.h"
#include "runtime/executor/cpu_features.h"

namespace trireme::runtime {
namespace {

// A file without a name, for the loader to read from: nobody can change it, as they can a bundle's,
// whose bytes were checked when it was read.
Result<int> memoryFile(const std::string& bytes) {
  const int fd = memfd_create("trireme-kernels", MFD_CLOEXEC);
  if (fd < 0) return Error(resourceExhausted("cannot create a memory file for the kernels"));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n <= 0) {
      const std::string reason = std::strerror(errno);
      close(fd);
      return Error(resourceExhausted(
          fmt::format("cannot keep the kernels, {}, in memory: {}; is there a limit (ulimit -f)?",
                      formatBytes(Bytes(static_cast<double>(bytes.size()))), reason)));
    }
    done += static_cast<size_t>(n);
  }
  return fd;
}

class Library {
 public:
  static Result<std::shared_ptr<void>> open(const std::string& bytes) {
    TRIREME_ASSIGN_OR_RETURN(const int fd, memoryFile(bytes));
    const auto library = std::make_shared<Library>(fd);
    library->handle_ = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library->handle_ == nullptr)
      return Error(invalidArgument(fmt::format("cannot load the bundle's kernels: {}", dlerror())));
    return std::shared_ptr<void>(library, library->handle_);
  }
  explicit Library(int fd) : fd_(fd) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  // The file last: while its number is taken no other library has the same name, for which the
  // loader would give out this one.
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
    close(fd_);
  }

 private:
  const int fd_;
  void* handle_ = nullptr;
};

bool needsLibrary(const program::Bundle& bundle) {
  for (const program::CompiledSegment& segment : bundle.kernels)
    for (const program::KernelCall& call : segment.calls)
      if (call.kind == program::KernelCallKind::kGenerated) return true;
  return false;
}

}  // namespace

Result<SegmentCode> SegmentCode::load(const program::Bundle& bundle, bool useReference) {
  SegmentCode code;
  code.program_ = &bundle.program;
  code.useReference_ = useReference;
  const size_t numSegments = bundle.program.segments.size();
  code.segments_.resize(numSegments);
  if (!useReference && !bundle.kernels.empty() && bundle.kernels.size() != numSegments)
    return Error(invalidArgument(fmt::format("the bundle has kernels for {} segments, not {}",
                                             bundle.kernels.size(), numSegments)));
  if (!useReference && needsLibrary(bundle)) {
    TRIREME_RETURN_IF_ERROR(checkTarget(bundle.target));
    TRIREME_ASSIGN_OR_RETURN(code.library_, Library::open(bundle.sharedObject));
  }
  for (size_t i = 0; i < numSegments; ++i) {
    const program::Segment& segment = bundle.program.segments[i];
    std::vector<Step>& steps = code.segments_[i];
    if (useReference || bundle.kernels.empty() || bundle.kernels[i].calls.empty())
      for (const program::SegmentOp& op : segment.ops) steps.push_back({nullptr, nullptr, &op});
    else
      TRIREME_RETURN_IF_ERROR(code.addCompiled(segment, bundle.kernels[i], steps));
  }
  return code;
}

Status SegmentCode::addCompiled(const program::Segment& segment,
                                const program::CompiledSegment& compiled,
                                std::vector<Step>& steps) {
  for (const program::KernelCall& call : compiled.calls) {
    if (call.kind == program::KernelCallKind::kLibrary) {
      steps.push_back({nullptr, nullptr, &call.op});
      continue;
    }
    for (int32_t operand : call.operands)
      if (operand < 0 || static_cast<size_t>(operand) >= segment.operands.size())
        return invalidArgument(fmt::format("segment {}, kernel {}: no operand {}", segment.name,
                                           call.symbol, operand));
    void* symbol = dlsym(library_.get(), call.symbol.c_str());
    if (symbol == nullptr)
      return invalidArgument(
          fmt::format("segment {}: kernels.so has no symbol {}", segment.name, call.symbol));
    steps.push_back({reinterpret_cast<program::GeneratedKernel>(symbol), &call, nullptr});
    maxArguments_ = std::max(maxArguments_, call.operands.size());
  }
  return {};
}

Status SegmentCode::runOp(const program::Segment& segment, const program::SegmentOp& op,
                          const Call& call) const {
  KernelCallArgs args{
      &op,       segment.operands.data(), call.operands, call.context, call.workspace,
      call.pool, call.lossScaling};
  if (call.zeros != nullptr && !call.zeros->empty()) {
    const auto bytesOf = [&](int32_t operand) {
      return segment.operands[static_cast<size_t>(operand)].bytes();
    };
    if (op.kind == program::OpKind::kMatmulGradWeight)
      args.overwrite =
          call.zeros->take(call.operands[op.outputs.front()], bytesOf(op.outputs.front()));
    for (const std::vector<int32_t>* operands : {&op.inputs, &op.outputs})
      for (const int32_t operand : *operands)
        call.zeros->write(call.operands[operand], bytesOf(operand));
  }
  return useReference_ ? runReferenceOp(args) : runLibraryOp(args);
}

Status SegmentCode::run(int32_t segment, const Call& call) const {
  const program::Segment& info = program_->segments[static_cast<size_t>(segment)];
  for (const Step& step : segments_[static_cast<size_t>(segment)]) {
    if (step.op != nullptr) {
      TRIREME_RETURN_IF_ERROR(runOp(info, *step.op, call));
      continue;
    }
    const program::KernelCall& generated = *step.generated;
    for (size_t i = 0; i < generated.operands.size(); ++i) {
      const int32_t operand = generated.operands[i];
      call.arguments[i] = call.operands[operand];
      if (call.zeros != nullptr && !call.zeros->empty())
        call.zeros->write(call.operands[operand],
                          info.operands[static_cast<size_t>(operand)].bytes());
    }
    if (generated.extent <= generated.grain) {
      step.kernel(call.context, call.arguments, 0, generated.extent);
      continue;
    }
    // Captures by one reference, which std::function holds without allocating.
    const auto body = [&](int64_t begin, int64_t end) {
      step.kernel(call.context, call.arguments, begin, end);
    };
    parallelFor(*call.pool, generated.extent, generated.grain, std::ref(body));
  }
  return {};
}

}  // namespace trireme::runtime
