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

// kResourceExhausted: the arenas of all ranks, which are threads of one process, need more than
// `available`. Says by how much and what a rank could have.
Status checkArenas(const program::Program& program, Bytes available);

}  // namespace trireme::runtime
