#include "cli/output/json_text.h"

#include <nlohmann/json.hpp>

namespace trireme::cli {

std::string jsonText(const nlohmann::json& document) {
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace trireme::cli
