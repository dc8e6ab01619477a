#include "codegen/import/shell_lexer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::codegen {
namespace {

constexpr std::string_view kBreaks = " \t\r\n();&|<>";
// Of quotes in substitutions in quotes...
constexpr int kDeepestQuotes = 60;
// Longer ones first.
constexpr std::array<std::string_view, 21> kOperators = {
    "&>>", "<<<", "<<-", ";;&", "&&", "||", ";;", ";&", "|&", "<<", ">>",
    ">&",  "<&",  "&>",  ">|",  "<>", ">",  "<",  "&",  "|",  ";"};

// One past the `close` of text[at..], which may hold all kinds of parts.
size_t endOfNested(const std::string& text, size_t at, char close, int depth) {
  while (at < text.size() && text[at] != close) {
    // In double quotes neither a single quote nor a parenthesis means anything.
    const bool isPlain = close == '"' && (text[at] == '\'' || text[at] == '(');
    at = isPlain ? at + 1 : endOfShellPart(text, at, depth + 1);
    if (at == std::string::npos) return at;
  }
  return at < text.size() ? at + 1 : std::string::npos;
}

size_t endOfPlain(const std::string& text, size_t begin, char close) {
  const size_t end = text.find(close, begin);
  return end == std::string::npos ? end : end + 1;
}

bool isAllDigits(const std::string& text) {
  return text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

bool isShellNameStart(char c) {
  return c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}
bool isShellNameChar(char c) { return isShellNameStart(c) || (c >= '0' && c <= '9'); }

size_t endOfShellPart(const std::string& text, size_t at, int depth) {
  if (depth > kDeepestQuotes) return std::string::npos;
  const char next = at + 1 < text.size() ? text[at + 1] : '\0';
  switch (text[at]) {
    case kOpenBegin:
      return endOfPlain(text, at, kOpenEnd);
    case '\'':
      return endOfPlain(text, at + 1, '\'');
    case '"':
      return endOfNested(text, at + 1, '"', depth);
    case '`':
      return endOfPlain(text, at + 1, '`');
    case '(':
      return endOfNested(text, at + 1, ')', depth);
    case '\\':
      return std::min(at + 2, text.size());
    case '$':
      if (next == '(') return endOfNested(text, at + 2, ')', depth);
      if (next == '{') return endOfNested(text, at + 2, '}', depth);
      if (next == '\'') return endOfPlain(text, at + 2, '\'');
      return at + 1;
    default:
      return at + 1;
  }
}

const ShellLexer::Token& ShellLexer::peek() {
  if (!ahead_) ahead_ = read();
  return *ahead_;
}

ShellLexer::Token ShellLexer::next() {
  Token token = peek();
  ahead_.reset();
  return token;
}

void ShellLexer::advanceTo(size_t end) {
  line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                       text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
  at_ = end;
}

void ShellLexer::skipBlanks() {
  while (at_ < text_.size()) {
    if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')
      ++at_;
    else if (text_[at_] == '\\' && text_.compare(at_ + 1, 1, "\n") == 0)
      advanceTo(at_ + 2);  // a line that goes on
    else if (text_[at_] == '\\' && text_.compare(at_ + 1, 2, "\r\n") == 0)
      advanceTo(at_ + 3);
    else if (text_[at_] == '#')
      at_ = std::min(text_.find('\n', at_), text_.size());
    else
      return;
  }
}

ShellLexer::Token ShellLexer::read() {
  skipBlanks();
  if (at_ >= text_.size() || openLine_) return {Kind::kEnd, {"", line_, {}}};
  Token token{Kind::kOperator, {std::string(1, text_[at_]), line_, {}}};
  if (text_[at_] == '\n') {
    token.kind = Kind::kNewline;
    const auto document = hereDocuments_.find(at_);
    advanceTo(document == hereDocuments_.end() ? at_ + 1 : document->second);
    return token;
  }
  if (text_[at_] == ')') {
    ++at_;
    return token;
  }
  if (text_[at_] == '(') {
    const bool isDouble = text_.compare(at_, 2, "((") == 0;
    const size_t end = isDouble ? endOfShellPart(text_, at_) : at_ + 1;
    if (end == std::string::npos) {
      openLine_ = line_;
      return {Kind::kEnd, {"", line_, {}}};
    }
    if (!isDouble || end < at_ + 4 || text_[end - 2] != ')') {
      ++at_;
      return token;
    }
    token = {Kind::kArithmetic, {text_.substr(at_ + 2, end - at_ - 4), line_, {}}};
    advanceTo(end);
    return token;
  }
  const bool isSubstitution =
      (text_[at_] == '<' || text_[at_] == '>') && text_.compare(at_ + 1, 1, "(") == 0;
  if (!isSubstitution)
    for (const std::string_view op : kOperators)
      if (text_.compare(at_, op.size(), op) == 0) {
        at_ += op.size();
        token.word.text = op;
        return token;
      }
  return readWord();
}

ShellLexer::Token ShellLexer::readWord() {
  Token token{Kind::kWord, {"", line_, {}}};
  size_t end = at_;
  if (text_[at_] == '<' || text_[at_] == '>') end = endOfShellPart(text_, at_ + 1);
  while (end < text_.size() && kBreaks.find(text_[end]) == std::string_view::npos)
    end = endOfShellPart(text_, end);
  if (end == std::string::npos) {
    openLine_ = line_;
    return {Kind::kEnd, {"", line_, {}}};
  }
  token.word.text = text_.substr(at_, end - at_);
  advanceTo(end);
  const char last = at_ < text_.size() ? text_[at_] : '\0';
  if ((last == '<' || last == '>') && isAllDigits(token.word.text)) return read();  // 2>&1
  if (last != '(' || !token.word.text.ends_with('=') || !isShellNameStart(token.word.text[0]))
    return token;
  ++at_;
  if (!readElements(token.word)) openLine_ = token.word.line;
  return token;
}

bool ShellLexer::readElements(ShellWord& word) {
  word.elements.emplace();
  while (true) {
    Token element = read();
    if (element.kind == Kind::kEnd) return false;
    if (element.kind == Kind::kOperator && element.word.text == ")") return true;
    if (element.kind == Kind::kWord && !element.word.elements)
      word.elements->push_back(std::move(element.word));
    else if (element.kind != Kind::kNewline)
      return false;
  }
}

std::string ShellLexer::takeHereDocument(const std::string& mark, bool stripsTabs) {
  const size_t lineEnd = text_.find('\n', at_);
  if (lineEnd == std::string::npos) return "";
  size_t& end = hereDocuments_.try_emplace(lineEnd, lineEnd + 1).first->second;
  std::string body;
  while (end < text_.size()) {
    const size_t begin = end;
    const size_t stop = std::min(text_.find('\n', begin), text_.size());
    end = std::min(stop + 1, text_.size());
    std::string line = text_.substr(begin, stop - begin);
    if (stripsTabs) line.erase(0, line.find_first_not_of('\t'));
    if (line == mark) break;
    body += line + "\n";
  }
  return body;
}

}  // namespace trireme::codegen
