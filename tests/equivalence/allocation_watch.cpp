#include "tests/equivalence/allocation_watch.h"

#include <atomic>
#include <cerrno>
#if !TRIREME_SANITIZED
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#else
// Declared by sanitizer/allocator_interface.h, which GCC does not install.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void*,
                                                                           size_t),
                                                         void (*freed)(const volatile void*));
#endif

namespace trireme::equivalence {
namespace {

// Constant-initialised: the first allocations come before any constructor.
std::atomic<bool> isWatching{false};
std::atomic<size_t> largest{0};

void note(size_t bytes) {
  if (!isWatching.load(std::memory_order_relaxed)) return;
  size_t seen = largest.load(std::memory_order_relaxed);
  while (bytes > seen && !largest.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

}  // namespace

void watchAllocations() {
#if TRIREME_SANITIZED
  [[maybe_unused]] static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t bytes) { note(bytes); }, [](const volatile void*) {});
#endif
  largest = 0;
  isWatching = true;
}

size_t largestAllocation() {
  isWatching = false;
  return largest;
}

}  // namespace trireme::equivalence

#if !TRIREME_SANITIZED
// glibc lets a program have a malloc of its own; these pass on to glibc's, whose free takes back
// what they gave.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t number, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

using trireme::equivalence::note;

void* malloc(size_t bytes) noexcept {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t number, size_t bytes) noexcept {
  note(number * bytes);
  return __libc_calloc(number, bytes);
}
void* realloc(void* old, size_t bytes) noexcept {
  note(bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** result, size_t alignment, size_t bytes) noexcept {
  note(bytes);
  void* memory = __libc_memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}
void* mmap(void* address, size_t bytes, int protection, int flags, int file,
           off_t offset) noexcept {
  note(bytes);
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}
}
#endif
