// Damaged versions of a valid text, for parsers that must survive anything. The same in every run.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

using TextCheck = std::function<void(const std::string& text)>;

// `count` texts in which 1 to `most` places have a byte of `bytes` written over or inserted, or
// lose up to 8 bytes.
void damageBytes(const std::string& valid, std::string_view bytes, int count, size_t most,
                 const TextCheck& check);

// Each number of the text replaced by each of `numbers`.
void damageNumbers(const std::string& valid, std::span<const char* const> numbers,
                   const TextCheck& check);

// Each line lost; each swapped with, and preceded by a copy of, each `step`-th other.
void damageLines(const std::string& valid, size_t step, const TextCheck& check);

// The text ends early: after nothing, `step` bytes, twice as many...
void endEarly(const std::string& valid, size_t step, const TextCheck& check);

}  // namespace trireme
