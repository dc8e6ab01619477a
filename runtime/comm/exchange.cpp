#include "runtime/comm/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace trireme::runtime {
namespace {

constexpr size_t kPart = 1 << 16;

Result<size_t> parseSize(const std::string& text, size_t rank) {
  size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) return size;
  return Error(invalidArgument(fmt::format("rank {} runs another program", rank)));
}

}  // namespace

Result<std::vector<std::string>> exchangeLong(Communicator& comm, const std::string& mine) {
  TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> sizes,
                           comm.exchange(std::to_string(mine.size())));
  size_t longest = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    TRIREME_ASSIGN_OR_RETURN(const size_t size, parseSize(sizes[i], i));
    longest = std::max(longest, size);
  }
  std::vector<std::string> all(sizes.size());
  for (size_t begin = 0; begin < longest; begin += kPart) {
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> parts,
                             comm.exchange(begin < mine.size() ? mine.substr(begin, kPart) : ""));
    for (size_t i = 0; i < all.size(); ++i) all[i] += parts[i];
  }
  return all;
}

}  // namespace trireme::runtime
