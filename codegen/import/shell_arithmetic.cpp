#include "codegen/import/shell_arithmetic.h"

#include <array>
#include <charconv>
#include <string_view>

#include "codegen/import/shell_lexer.h"

namespace trireme::codegen {
namespace {

using Number = std::optional<int64_t>;

constexpr int kDeepestParentheses = 50;  // parentheses
// From the loosest to the tightest; of each the longer operators first.
constexpr std::array<std::array<std::string_view, 4>, 7> kLevels = {
    {{"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "/", "%"}, {"**"}}};

Number power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (exponent < 0 || exponent > 62) return std::nullopt;
  for (int64_t i = 0; i < exponent; ++i)
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  return result;
}

Number apply(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "||") return a != 0 || b != 0;
  if (op == "&&") return a != 0 && b != 0;
  if (op == "==") return a == b;
  if (op == "!=") return a != b;
  if (op == "<=") return a <= b;
  if (op == ">=") return a >= b;
  if (op == "<") return a < b;
  if (op == ">") return a > b;
  if (op == "**") return power(a, b);
  const bool overflows = op == "+"   ? __builtin_add_overflow(a, b, &result)
                         : op == "-" ? __builtin_sub_overflow(a, b, &result)
                         : op == "*" ? __builtin_mul_overflow(a, b, &result)
                                     : b == 0 || (b == -1 && a == INT64_MIN);
  if (overflows) return std::nullopt;
  if (op == "/") return a / b;
  if (op == "%") return a % b;
  return result;
}

class Evaluator {
 public:
  Evaluator(const std::string& text, const ShellLookup& lookup) : text_(text), lookup_(lookup) {}

  Number evaluate() {
    const Number value = level(0, 0);
    skipBlanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skipBlanks() {
    while (at_ < text_.size() && kShellBlanks.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool takes(std::string_view op) {
    skipBlanks();
    if (op.empty() || text_.compare(at_, op.size(), op) != 0) return false;
    if (op == "*" && text_.compare(at_, 2, "**") == 0) return false;
    at_ += op.size();
    return true;
  }
  Number level(size_t depth, int nested) {
    if (depth == kLevels.size()) return unary(nested);
    Number left = level(depth + 1, nested);
    for (bool isTaken = true; isTaken && left;) {
      isTaken = false;
      for (const std::string_view op : kLevels[depth]) {
        if (isTaken || !takes(op)) continue;
        isTaken = true;
        const Number right = level(depth + 1, nested);
        left = right ? apply(op, *left, *right) : std::nullopt;
        if (!left) break;
      }
    }
    return left;
  }
  Number unary(int nested) {
    if (nested > kDeepestParentheses) return std::nullopt;
    if (takes("!")) {
      const Number value = unary(nested + 1);
      return value ? Number(*value == 0) : value;
    }
    if (takes("-")) {
      const Number value = unary(nested + 1);
      return value ? apply("-", 0, *value) : value;
    }
    if (takes("+")) return unary(nested + 1);
    if (takes("(")) {
      const Number value = level(0, nested + 1);
      return takes(")") ? value : std::nullopt;
    }
    takes("$");
    takes("{");
    const size_t begin = at_;
    while (at_ < text_.size() && isShellNameChar(text_[at_])) ++at_;
    const std::string word = text_.substr(begin, at_ - begin);
    takes("}");
    if (word.empty() || !isShellNameStart(word[0])) return shellNumber(word);
    const std::optional<std::string> value = lookup_(word);
    return value ? shellNumber(*value) : std::nullopt;
  }

  const std::string& text_;
  const ShellLookup& lookup_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> shellNumber(const std::string& text) {
  const size_t begin = text.find_first_not_of(kShellBlanks);
  if (begin == std::string::npos) return std::nullopt;
  const size_t end = text.find_last_not_of(kShellBlanks) + 1;
  // A leading 0 is octal.
  if (text[begin] == '0' && end - begin > 1) return std::nullopt;
  int64_t value = 0;
  const auto [stop, code] = std::from_chars(text.data() + begin, text.data() + end, value);
  if (code != std::errc{} || stop != text.data() + end) return std::nullopt;
  return value;
}

std::optional<int64_t> shellArithmetic(const std::string& text, const ShellLookup& lookup) {
  return Evaluator(text, lookup).evaluate();
}

}  // namespace trireme::codegen
