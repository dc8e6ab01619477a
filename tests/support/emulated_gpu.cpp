#include "tests/support/emulated_gpu.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>

#include "tests/support/emulated_graphs.h"

namespace trireme::testing {
namespace {

using runtime::cuda::DevicePointer;

constexpr std::string_view kLibrary = "library ";  // begins the images of the library kernels
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidContext = 201;
constexpr int kNoBinary = 209;
constexpr int kNotFound = 500, kUnknown = 999;
constexpr char kGarbage = static_cast<char>(0xCB);
constexpr size_t kBlockAlignment = 256;

EmulatedGpu* current = nullptr;
thread_local const void* context = nullptr;  // of the thread; the GPU stands for its context

char* address(DevicePointer pointer) { return reinterpret_cast<char*>(pointer); }

}  // namespace

// The functions of the driver's table.
struct EmulatedDriver : EmulatedGraphs {
  static int init(unsigned) { return gpu().options_.numDevices == 0 ? kNoDevice : 0; }
  static int driverVersion(int* version) {
    *version = gpu().options_.driverVersion;
    return 0;
  }
  static int errorString(int error, const char** text) {
    *text = error == kOutOfMemory ? "out of memory" : "emulated error";
    return 0;
  }
  static int deviceCount(int* count) {
    *count = gpu().options_.numDevices;
    return 0;
  }
  static int device(int* device, int ordinal) {
    *device = ordinal;
    return 0;
  }
  static int deviceName(char* name, int length, int) {
    std::strncpy(name, gpu().options_.name.c_str(), static_cast<size_t>(length));
    return 0;
  }
  static int deviceAttribute(int* value, int attribute, int) {
    const EmulatedGpuOptions& options = gpu().options_;
    switch (attribute) {
      case runtime::cuda::kMultiprocessorCount:
        *value = options.numMultiprocessors;
        return 0;
      case runtime::cuda::kComputeCapabilityMajor:
        *value = options.capability / 10;
        return 0;
      case runtime::cuda::kComputeCapabilityMinor:
        *value = options.capability % 10;
        return 0;
      default:
        return kInvalidValue;
    }
  }
  static int retainContext(void** out, int) {
    *out = &gpu();
    return 0;
  }
  static int releaseContext(int) { return 0; }
  static int setContext(void* wanted) {
    context = wanted;
    return 0;
  }
  // 0 where the calling thread has chosen the GPU.
  static int checkContext(const char* what) {
    if (context == &gpu()) return 0;
    gpu().fault(std::string(what) + " by a thread that has not chosen the GPU");
    return kInvalidContext;
  }

  static int memoryInfo(size_t* available, size_t* total) {
    const Lock lock(gpu().mutex_);
    *total = static_cast<size_t>(gpu().options_.memoryBytes);
    *available = static_cast<size_t>(gpu().options_.memoryBytes - gpu().usedBytes_);
    return checkContext("memory asked for");
  }
  static int allocate(DevicePointer* data, size_t bytes) {
    const Lock lock(gpu().mutex_);
    if (const int error = checkContext("allocation"); error != 0) return error;
    if (const int error = gpu().checkNoCapture(nullptr, "allocation"); error != 0) return error;
    if (bytes == 0) return kInvalidValue;
    if (gpu().usedBytes_ + static_cast<int64_t>(bytes) > gpu().options_.memoryBytes)
      return kOutOfMemory;
    EmulatedGpu::Block block(bytes, kGarbage);
    *data = reinterpret_cast<uintptr_t>(block.data());
    gpu().usedBytes_ += static_cast<int64_t>(bytes);
    ++gpu().numCreations_;
    const char* key = block.data();
    gpu().memory_.emplace(key, std::move(block));
    return 0;
  }
  static int release(DevicePointer data) {
    const Lock lock(gpu().mutex_);
    if (const int error = gpu().checkNoCapture(nullptr, "memory freed"); error != 0) return error;
    const auto found = gpu().memory_.find(address(data));
    if (found == gpu().memory_.end()) return gpu().fault("memory freed that is not allocated");
    gpu().usedBytes_ -= static_cast<int64_t>(found->second.size());
    gpu().memory_.erase(found);
    return 0;
  }
  static int allocateHost(void** data, size_t bytes, unsigned) {
    const Lock lock(gpu().mutex_);
    if (const int error = checkContext("allocation"); error != 0) return error;
    if (const int error = gpu().checkNoCapture(nullptr, "allocation"); error != 0) return error;
    std::vector<char> block(bytes, kGarbage);
    *data = block.data();
    ++gpu().numCreations_;
    const char* key = block.data();
    gpu().hostMemory_[key] = std::move(block);
    return 0;
  }
  static int releaseHost(void* data) {
    const Lock lock(gpu().mutex_);
    if (const int error = gpu().checkNoCapture(nullptr, "memory freed"); error != 0) return error;
    return gpu().hostMemory_.erase(static_cast<char*>(data)) == 1
               ? 0
               : gpu().fault("host memory freed that is not allocated");
  }

  static int copyToDevice(DevicePointer to, const void* from, size_t bytes, void* stream) {
    const Lock lock(gpu().mutex_);
    if (bytes > 0 && !gpu().isAllocated(address(to), bytes))
      return gpu().fault("a copy to memory that is not allocated");
    return gpu().enqueue(stream, {[=] { std::memcpy(address(to), from, bytes); }});
  }
  static int copyToHost(void* to, DevicePointer from, size_t bytes, void* stream) {
    const Lock lock(gpu().mutex_);
    if (bytes > 0 && !gpu().isAllocated(address(from), bytes))
      return gpu().fault("a copy from memory that is not allocated");
    return gpu().enqueue(stream, {[=] { std::memcpy(to, address(from), bytes); }});
  }
  static int copyOnDevice(DevicePointer to, DevicePointer from, size_t bytes, void* stream) {
    const Lock lock(gpu().mutex_);
    if (!gpu().isAllocated(address(from), bytes) || !gpu().isAllocated(address(to), bytes))
      return gpu().fault("a copy of memory that is not allocated");
    if (address(to) < address(from) + bytes && address(from) < address(to) + bytes)
      return gpu().fault("a copy that overlaps itself");
    return gpu().enqueueRun(stream, {.name = "copy", .bytes = static_cast<double>(bytes)},
                            [=, idle = gpu().options_.isIdle] {
                              if (!idle) std::memcpy(address(to), address(from), bytes);
                            });
  }
  static int fill(DevicePointer to, unsigned char byte, size_t bytes, void* stream) {
    const Lock lock(gpu().mutex_);
    if (bytes > 0 && !gpu().isAllocated(address(to), bytes))
      return gpu().fault("memory filled that is not allocated");
    return gpu().enqueueRun(stream, {.name = "fill", .bytes = static_cast<double>(bytes)},
                            [=, idle = gpu().options_.isIdle] {
                              if (!idle) std::memset(address(to), byte, bytes);
                            });
  }

  // As on GPUs since compute capability 3.5.
  static constexpr int kGreatestPriority = -5;
  static int priorities(int* least, int* greatest) {
    const Lock lock(gpu().mutex_);
    *least = 0;
    *greatest = kGreatestPriority;
    return checkContext("priorities asked for");
  }
  static int createStream(void** stream, unsigned, int priority) {
    const Lock lock(gpu().mutex_);
    if (const int error = checkContext("stream created"); error != 0) return error;
    if (priority > 0 || priority < kGreatestPriority) return gpu().fault("no such priority");
    ++gpu().numStreamsOf_[priority];
    auto created = std::make_unique<EmulatedGpu::Stream>();
    *stream = created.get();
    ++gpu().numCreations_;
    gpu().streams_[*stream] = std::move(created);
    return 0;
  }
  static int destroyStream(void* stream) {
    const Lock lock(gpu().mutex_);
    if (const int error = gpu().checkNoCapture(stream, "stream destroyed"); error != 0)
      return error;
    return gpu().streams_.erase(stream) == 1 ? 0 : gpu().fault("no such stream to destroy");
  }
  static int synchronize(void* stream) {
    const Lock lock(gpu().mutex_);
    ++gpu().numSynchronizations_;
    if (const int error = gpu().checkNoCapture(stream, "stream waited for"); error != 0)
      return error;
    return gpu().drain(stream);
  }
  static int queryStream(void* stream) {
    const Lock lock(gpu().mutex_);
    if (const int error = checkContext("stream asked for"); error != 0) return error;
    if (const int error = gpu().checkNoCapture(stream, "stream asked for"); error != 0)
      return error;
    return gpu().query(stream);
  }
  static int writeValue(void* stream, DevicePointer to, uint32_t value, unsigned) {
    const Lock lock(gpu().mutex_);
    const char* place = address(to);
    const auto block = gpu().hostMemory_.upper_bound(place);
    if (block == gpu().hostMemory_.begin() ||
        place + sizeof(value) > std::prev(block)->first + std::prev(block)->second.size())
      return gpu().fault("a value written to memory that is not allocated");
    return gpu().enqueue(
        stream, {[=] {
          std::atomic_ref(*reinterpret_cast<uint32_t*>(to)).store(value, std::memory_order_release);
        }});
  }
  static int elapsedTime(float* milliseconds, void* begin, void* end) {
    const Lock lock(gpu().mutex_);
    const auto first = gpu().events_.find(begin), last = gpu().events_.find(end);
    if (first == gpu().events_.end() || last == gpu().events_.end())
      return gpu().fault("no such event to ask for its time");
    for (const auto& found : {first, last})
      if (!found->second->timed || found->second->completed == 0)
        return gpu().fault("the time of an event that has none");
    *milliseconds = static_cast<float>(1e3 * (last->second->seconds - first->second->seconds));
    return 0;
  }
  static int createEvent(void** event, unsigned flags) {
    const Lock lock(gpu().mutex_);
    if (const int error = checkContext("event created"); error != 0) return error;
    auto created = std::make_shared<EmulatedGpu::Event>();
    created->timed = (flags & runtime::cuda::kEventDisableTiming) == 0;
    *event = created.get();
    ++gpu().numCreations_;
    gpu().events_[*event] = std::move(created);
    return 0;
  }
  static int destroyEvent(void* event) {
    const Lock lock(gpu().mutex_);
    return gpu().events_.erase(event) == 1 ? 0 : gpu().fault("no such event to destroy");
  }
  static int recordEvent(void* event, void* stream) {
    const Lock lock(gpu().mutex_);
    const auto found = gpu().events_.find(event);
    if (found == gpu().events_.end()) return gpu().fault("no such event to record");
    if (const int error = gpu().checkNoCapture(stream, "event recorded"); error != 0) return error;
    const std::shared_ptr<EmulatedGpu::Event> recorded = found->second;
    return gpu().enqueue(stream, {nullptr, recorded, nullptr, ++recorded->recorded});
  }
  static int waitEvent(void* stream, void* event, unsigned) {
    const Lock lock(gpu().mutex_);
    const auto found = gpu().events_.find(event);
    if (found == gpu().events_.end()) return gpu().fault("no such event to wait for");
    if (const int error = gpu().checkNoCapture(stream, "event waited for"); error != 0)
      return error;
    const std::shared_ptr<EmulatedGpu::Event> awaited = found->second;
    if (awaited->recorded == 0) return gpu().fault("a wait for an event that was never recorded");
    return gpu().enqueue(stream, {nullptr, nullptr, awaited, awaited->recorded});
  }

  static int loadModule(void** module, const void* image) {
    const Lock lock(gpu().mutex_);
    if (const int error = checkContext("module loaded"); error != 0) return error;
    if (const int error = gpu().checkNoCapture(nullptr, "module loaded"); error != 0) return error;
    if (image == nullptr) return kInvalidValue;
    const std::string_view text(static_cast<const char*>(image));
    for (const std::string& refused : gpu().options_.refusedImages)
      if (text == refused) return kNoBinary;
    const bool isLibrary = text.starts_with(kLibrary);
    if (isLibrary) gpu().libraryImage_ = text;
    if (!isLibrary) gpu().generatedImages_.emplace_back(text);
    *module = isLibrary ? &gpu() : static_cast<void*>(&gpu().generated_);
    return 0;
  }
  static int unloadModule(void*) { return 0; }
  static int function(void** function, void* module, const char* name) {
    const auto& kernels = module == &gpu().generated_ ? gpu().generated_
                          : gpu().options_.inWarps    ? warpKernels()
                                                      : emulatedKernels();
    const auto found = kernels.find(name);
    if (found == kernels.end()) return kNotFound;
    *function = const_cast<EmulatedKernel*>(&found->second);
    const Lock lock(gpu().mutex_);
    gpu().kernelNames_[*function] = name;
    return 0;
  }
  static int launch(void* function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                    unsigned blockY, unsigned blockZ, unsigned, void* stream, void** params,
                    void**) {
    const Lock lock(gpu().mutex_);
    std::function<void()> run;
    if (const int error =
            kernelWork({function, gridX, gridY, gridZ, blockX, blockY, blockZ, 0, params}, run);
        error != 0)
      return error;
    const double seconds =
        gpu().secondsOf({.name = gpu().kernelNames_[function], .args = params[0]});
    return gpu().submit(stream, static_cast<const EmulatedKernel*>(function), std::move(run),
                        seconds);
  }
};

void addWarpFault(const std::string& kernel) {
  current->fault("the threads of a warp went apart in " + kernel);
}

EmulatedGpu::EmulatedGpu(const EmulatedGpuOptions& options)
    : options_(options), random_(options.seed) {
  TRIREME_CHECK(current == nullptr);
  current = this;
}

EmulatedGpu::~EmulatedGpu() { current = nullptr; }

// Only the addresses of a kernel's image are ever used.
runtime::cuda::Apis EmulatedGpu::apis() const {
  static const runtime::cuda::DriverApi driver = [] {
    runtime::cuda::DriverApi api;
#define TRIREME_FILL(field, symbol, parameters) api.field = EmulatedDriver::field;
    TRIREME_CUDA_DRIVER_FUNCTIONS(TRIREME_FILL)
#undef TRIREME_FILL
    return api;
  }();
  runtime::cuda::Apis apis;
  apis.driver = &driver;
  apis.cublasLt = &emulatedCublasLt();
  apis.images = {
      {80, false, "library sm_80"}, {90, false, "library sm_90"}, {80, true, "library PTX"}};
  return apis;
}

EmulatedGpu* EmulatedGpu::instance() { return current; }

std::vector<std::string> EmulatedGpu::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

std::vector<EmulatedProduct> EmulatedGpu::products() const {
  const std::lock_guard lock(mutex_);
  return products_;
}

EmulatedGpu::Block::Block(size_t bytes, char value)
    : data_(static_cast<char*>(::operator new(bytes, std::align_val_t(kBlockAlignment)))),
      bytes_(bytes) {
  std::fill_n(data_.get(), bytes, value);
}
void EmulatedGpu::Block::Free::operator()(char* data) const {
  ::operator delete(data, std::align_val_t(kBlockAlignment));
}

int64_t EmulatedGpu::numLiveObjects() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(memory_) + std::ssize(hostMemory_) + std::ssize(streams_) +
         std::ssize(events_) + std::ssize(graphs_) + std::ssize(graphExecs_) +
         std::ssize(matmulObjects_);
}

int EmulatedGpu::fault(const std::string& what) {
  faults_.push_back(what);
  return kInvalidValue;
}

bool EmulatedGpu::isAllocated(const void* data, size_t bytes) const {
  const auto* begin = static_cast<const char*>(data);
  auto block = memory_.upper_bound(begin);
  if (block == memory_.begin()) return false;
  --block;
  return begin + bytes <= block->first + block->second.size();
}

int EmulatedGpu::enqueue(void* stream, Work work) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return fault("work for a stream that does not exist");
  if (found->second->captured != nullptr) {
    // Whatever has no place in a graph was refused before.
    if (!work.run) return checkNoCapture(stream, "work that graphs do not take");
    found->second->captured->nodes.push_back(
        std::make_unique<Node>(Node{std::move(work.run), nullptr, work.seconds}));
    return 0;
  }
  found->second->queue.push_back(std::move(work));
  return 0;
}

int EmulatedGpu::enqueueRun(void* stream, const EmulatedTask& task, std::function<void()> run) {
  Work work;
  work.run = std::move(run);
  work.seconds = secondsOf(task);
  return enqueue(stream, std::move(work));
}

double EmulatedGpu::timeOf(const Stream& stream) const {
  if (options_.duration || !options_.matmulSeconds.empty()) return stream.seconds;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool EmulatedGpu::ready(const Work& work) const {
  if (work.endless) return false;
  if (work.meeting != nullptr && !work.meeting->done)
    return work.meeting->arrived >= work.meeting->size;
  return work.awaited == nullptr || work.awaited->completed >= work.number;
}

void EmulatedGpu::runHead(Stream& stream) {
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (work.run) work.run();
  if (work.meeting != nullptr && !work.meeting->done) {
    work.meeting->done = true;
    work.meeting->run();
  }
  if (work.awaited != nullptr) stream.seconds = std::max(stream.seconds, work.awaited->seconds);
  if (work.meeting != nullptr) stream.seconds = std::max(stream.seconds, work.meeting->begins);
  stream.seconds += work.seconds;
  if (work.recorded == nullptr) return;
  work.recorded->completed = std::max(work.recorded->completed, work.number);
  work.recorded->seconds = timeOf(stream);
}

// A stream has come to a meeting when that is next.
void EmulatedGpu::arrive() {
  for (const auto& [handle, stream] : streams_) {
    if (stream->queue.empty()) continue;
    Work& next = stream->queue.front();
    if (next.meeting == nullptr || next.hasArrived) continue;
    next.hasArrived = true;
    next.meeting->begins = std::max(next.meeting->begins, stream->seconds);
    ++next.meeting->arrived;
  }
}

// Whether some stream waits for others that their threads may not have told yet.
bool EmulatedGpu::isMeeting() const {
  for (const auto& [handle, stream] : streams_)
    if (!stream->queue.empty() && stream->queue.front().meeting != nullptr) return true;
  return false;
}

// Some stream that can go on goes on, for as long as it likes. False: none can.
bool EmulatedGpu::turn() {
  arrive();
  std::vector<Stream*> able;
  for (const auto& [handle, other] : streams_)
    if (!other->queue.empty() && ready(other->queue.front())) able.push_back(other.get());
  if (able.empty()) return false;
  Stream& next = *able[random_() % able.size()];
  for (uint64_t turns = 1 + random_() % 8;
       turns > 0 && !next.queue.empty() && ready(next.queue.front()); --turns)
    runHead(next);
  return true;
}

// A GPU that hangs is no fault, but to wait for it is one: nobody comes back from that.
int EmulatedGpu::query(void* stream) {
  constexpr int kTurns = 16;
  const auto target = streams_.find(stream);
  if (target == streams_.end()) return fault("no such stream to ask for");
  for (int i = 0; i < kTurns && !target->second->queue.empty(); ++i)
    if (!turn()) {
      if (options_.hangsAtLaunch >= 0 || isMeeting()) break;
      fault("all streams wait for each other");
      return kUnknown;
    }
  return target->second->queue.empty() ? 0 : runtime::cuda::kNotReady;
}

int EmulatedGpu::drain(void* stream) {
  const auto target = streams_.find(stream);
  if (target == streams_.end()) return fault("no such stream to wait for");
  while (!target->second->queue.empty())
    if (!turn()) {
      fault("all streams wait for each other, or for work that never ends");
      return kUnknown;
    }
  return 0;
}

}  // namespace trireme::testing
