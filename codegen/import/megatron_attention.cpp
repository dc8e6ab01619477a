#include "codegen/import/megatron_attention.h"

#include <fmt/format.h>

namespace trireme::codegen {
namespace {

constexpr const char* kBackend = "--attention-backend";
constexpr const char *kFused = "NVTE_FUSED_ATTN", *kFlash = "NVTE_FLASH_ATTN";

// Transformer Engine takes a backend unless its variable is 0; the last word counts.
bool isOff(const std::vector<ShellText>& variables, const std::string& name) {
  bool off = false;
  for (const ShellText& variable : variables)
    if (variable.text.starts_with(name + "=")) off = variable.text == name + "=0";
  return off;
}

std::string noteOfFlash(const std::string& asks) {
  return asks +
         ": priced as the stack's attention, which on Hopper and later is faster than "
         "FlashAttention 2; where that runs, price with attention: flash2 in a copy of the stack";
}

// Today's Megatron-Core sets them itself, by the flag, and stops where they say something else.
void readVariables(Flags& flags, const std::vector<ShellText>& variables,
                   std::vector<std::string>& notes) {
  if (!isOff(variables, kFused)) return;
  if (isOff(variables, kFlash))
    return flags.fail(kFused, fmt::format("and {} are 0: attention in parts cannot be priced; "
                                          "nearest: {}=1",
                                          kFlash, kFused));
  notes.push_back(noteOfFlash(fmt::format("{}=0", kFused)));
  if (!flags.isGiven(kBackend))
    notes.push_back(
        fmt::format("{}=0: today's Megatron-Core stops there without {} flash", kFused, kBackend));
}

}  // namespace

void readAttention(Flags& flags, const std::vector<ShellText>& kernelVariables,
                   std::vector<std::string>& notes) {
  const std::string backend =
      flags.choice(kBackend, {"auto", "flash", "fused", "unfused", "local"}, "auto");
  if (backend == "unfused" || backend == "local")
    flags.fail(kBackend,
               fmt::format("is {}: attention in parts cannot be priced; nearest: fused", backend));
  if (backend == "flash")
    notes.push_back(noteOfFlash(fmt::format("{} is flash", kBackend)));
  else
    readVariables(flags, kernelVariables, notes);
  for (const std::string& exchange : flags.texts("--cp-comm-type"))  // one, or one of every layer
    if (exchange != "p2p") {
      notes.push_back(fmt::format("--cp-comm-type is {}: priced as p2p", exchange));
      break;
    }
}

}  // namespace trireme::codegen
