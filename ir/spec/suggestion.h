// The nearest valid choice, for the message about a wrong one.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::spec {

// Of ASCII letters, whatever the locale.
std::string lowerCase(std::string_view text);
// Levenshtein distance.
size_t editDistance(std::string_view a, std::string_view b);
// "; did you mean 'x'?" if candidates have it among their words or one is near, whatever its case,
// else "; valid: a, b, c".
std::string suggestion(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace trireme::spec
