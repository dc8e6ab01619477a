// Sees what this test's process allocates: by malloc and its relatives, so by operator new, and by
// mmap. Under a sanitizer, which has a heap of its own and maps memory for itself, mmap is not
// seen.
#pragma once
#include <cstddef>

namespace trireme::equivalence {

// Watches all threads from now on. One watch at a time.
void watchAllocations();
// Ends the watch. The largest allocation that it saw, in bytes.
size_t largestAllocation();

}  // namespace trireme::equivalence
