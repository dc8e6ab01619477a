// JSON as every command prints it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trireme::cli {

// Indented. What is no UTF-8 (names of files may be anything) is replaced.
std::string jsonText(const nlohmann::json& document);

}  // namespace trireme::cli
