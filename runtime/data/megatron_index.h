// The index of a Megatron-LM dataset: X.idx beside X.bin. Layout, little-endian, of
// megatron/core/datasets/indexed_dataset.py: "MMIDIDX\0\0", version (u64, 1), type code (u8),
// sequences S (u64), documents D (u64), lengths (i32[S], tokens), places (i64[S], bytes in X.bin),
// first sequences of documents (i64[D]).
#pragma once
#include <cstdint>
#include <string_view>

#include "ir/base/status.h"
#include "runtime/data/token_type.h"

namespace trireme::runtime {

inline constexpr int64_t kMegatronHeaderBytes = 34;

struct MegatronIndex {
  TokenType type = TokenType::kI32;
  int64_t numSequences = 0, numDocuments = 0;
};

// From the first kMegatronHeaderBytes of a file of `fileBytes`. Safe on any input.
// kInvalidArgument: not such an index, of another version, of a type that holds no tokens, or its
// counts do not give the file's size.
Result<MegatronIndex> parseMegatronIndex(std::string_view header, int64_t fileBytes);

}  // namespace trireme::runtime
