// Whether the arenas of all ranks fit on this machine, asked before they are touched.
#pragma once
#include <optional>
#include <string>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/program.h"

namespace trireme::runtime {

// Memory that the kernel can still give, swap included; nothing where it does not tell.
std::optional<Bytes> availableMemory();
// `meminfo` is the text of Linux's /proc/meminfo.
std::optional<Bytes> parseAvailableMemory(const std::string& meminfo);

// The arenas of all ranks, which are threads of one process, must fit into `available`. What counts
// is what ranks of `threadsPerRank` threads touch: pages are memory from the first touch on, and
// the workspace of threads that are not there is never touched.
// kResourceExhausted: they do not fit. Names the need, and how many threads or which arenas would.
Status checkArenas(const program::Program& program, int threadsPerRank, Bytes available);

}  // namespace trireme::runtime
