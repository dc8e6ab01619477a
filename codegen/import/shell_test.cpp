#include "codegen/import/shell_test.h"

#include <optional>
#include <string_view>

#include "codegen/import/shell_arithmetic.h"

namespace trireme::codegen {
namespace {

using Truth = ShellTruth;

constexpr int kDeepestTest = 40;

Truth both(Truth a, Truth b) {
  if (a == Truth::kFalse || b == Truth::kFalse) return Truth::kFalse;
  return a == Truth::kTrue && b == Truth::kTrue ? Truth::kTrue : Truth::kOpen;
}

// An operand or an operator; `pattern` is set inside of [[.
struct Item {
  std::string text;
  bool canBeOperator = true;
  const ShellWord* pattern = nullptr;
};

// Linear in the text: a star is only ever tried again at a later place.
bool matches(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Truth compareNumbers(std::string_view op, const std::string& a, const std::string& b) {
  const std::optional<int64_t> x = shellNumber(a), y = shellNumber(b);
  if (!x || !y) return Truth::kOpen;
  if (op == "-eq") return truthOf(*x == *y);
  if (op == "-ne") return truthOf(*x != *y);
  if (op == "-lt") return truthOf(*x < *y);
  if (op == "-le") return truthOf(*x <= *y);
  if (op == "-gt") return truthOf(*x > *y);
  return truthOf(*x >= *y);
}

bool isNumeric(std::string_view op) {
  return op == "-eq" || op == "-ne" || op == "-lt" || op == "-le" || op == "-gt" || op == "-ge";
}

// Known to be empty, known not to be, or open: what is known besides an open part is some text.
Truth isEmpty(const std::string& text) {
  if (!hasOpenPart(text)) return truthOf(text.empty());
  return text.front() == kOpenBegin && text.find(kOpenEnd) == text.size() - 1 ? Truth::kOpen
                                                                              : Truth::kFalse;
}

class Test {
 public:
  Test(std::vector<Item> items, ShellState* state) : items_(std::move(items)), state_(state) {}

  Truth evaluate() {
    const Truth truth = either(0);
    return at_ == items_.size() ? truth : Truth::kOpen;
  }

 private:
  bool takes(std::string_view op) {
    if (at_ >= items_.size() || !items_[at_].canBeOperator || items_[at_].text != op) return false;
    ++at_;
    return true;
  }
  Truth either(int depth) {
    Truth truth = all(depth);
    while (takes("||") || takes("-o")) truth = negated(both(negated(truth), negated(all(depth))));
    return truth;
  }
  Truth all(int depth) {
    Truth truth = one(depth);
    while (takes("&&") || takes("-a")) truth = both(truth, one(depth));
    return truth;
  }
  Truth one(int depth) {
    if (depth > kDeepestTest) return Truth::kOpen;
    if (items_.size() - at_ > 1 && takes("!")) return negated(one(depth + 1));
    if (items_.size() - at_ > 2 && takes("(")) {
      const Truth truth = either(depth + 1);
      return takes(")") ? truth : Truth::kOpen;
    }
    if (items_.size() - at_ >= 3 && items_[at_ + 1].canBeOperator)
      if (const std::optional<Truth> truth =
              binary(items_[at_], items_[at_ + 1].text, items_[at_ + 2])) {
        at_ += 3;
        return *truth;
      }
    if (at_ >= items_.size()) return Truth::kFalse;
    const std::string& op = items_[at_].text;
    if (at_ + 1 < items_.size() && items_[at_].canBeOperator && op.size() == 2 && op[0] == '-') {
      const Truth truth = op == "-z"   ? isEmpty(items_[at_ + 1].text)
                          : op == "-n" ? negated(isEmpty(items_[at_ + 1].text))
                                       : Truth::kOpen;
      at_ += 2;
      return truth;
    }
    return negated(isEmpty(items_[at_++].text));
  }
  // Absent: `op` is no operator of two.
  std::optional<Truth> binary(const Item& a, std::string_view op, const Item& b) {
    if (isNumeric(op)) return compareNumbers(op, a.text, b.text);
    if (op == "=" || op == "==" || op == "!=") {
      Truth truth = Truth::kOpen;
      if (b.pattern)
        truth = matchesShell(a.text, *b.pattern, *state_);
      else if (!hasOpenPart(a.text) && !hasOpenPart(b.text))
        truth = truthOf(a.text == b.text);
      return op == "!=" ? negated(truth) : truth;
    }
    if (op == "=~" || op == "<" || op == ">" || op == "-nt" || op == "-ot" || op == "-ef")
      return Truth::kOpen;
    return std::nullopt;
  }

  std::vector<Item> items_;
  ShellState* state_;
  size_t at_ = 0;
};

}  // namespace

ShellTruth truthOf(bool isTrue) { return isTrue ? Truth::kTrue : Truth::kFalse; }

ShellTruth negated(ShellTruth truth) {
  if (truth == Truth::kOpen) return truth;
  return truthOf(truth == Truth::kFalse);
}

ShellTruth testShell(const std::vector<ShellText>& words) {
  std::vector<Item> items;
  for (const ShellText& word : words) items.push_back({word.text, true, nullptr});
  return Test(std::move(items), nullptr).evaluate();
}

ShellTruth testShellPatterns(const std::vector<ShellWord>& words, ShellState& state) {
  std::vector<Item> items;
  for (const ShellWord& word : words)
    items.push_back(
        {expandText(word, state), word.text.find_first_of("'\"\\$`") == std::string::npos, &word});
  return Test(std::move(items), &state).evaluate();
}

ShellTruth matchesShell(const std::string& text, const ShellWord& pattern, ShellState& state) {
  const std::string expanded = expandText(pattern, state);
  if (expanded == "*" && pattern.text == "*") return Truth::kTrue;
  if (hasOpenPart(text) || hasOpenPart(expanded)) return Truth::kOpen;
  // Stars in quotes or in values are rare: they are open, not read as stars.
  if (expanded.find_first_of("*?[") == std::string::npos) return truthOf(text == expanded);
  const bool isPlain = pattern.text == expanded && expanded.find('[') == std::string::npos;
  return isPlain ? truthOf(matches(text, expanded)) : Truth::kOpen;
}

}  // namespace trireme::codegen
