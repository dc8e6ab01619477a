#include "codegen/import/shell_words.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace trireme::codegen {
namespace {

constexpr std::string_view kBreaks = " \t\r\n();&|<>";
// Of all values that are put in: names that double themselves end here.
constexpr size_t kMostExpanded = size_t{1} << 20;

bool isNameChar(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

class Splitter {
 public:
  explicit Splitter(const std::string& text) : text_(text) {}

  std::vector<Word> split() {
    while (at_ < text_.size()) step(text_[at_]);
    endWord();
    return std::move(words_);
  }

 private:
  void step(char c) {
    if (c == '$' && expand(false)) return;
    if (c == '\\') {
      escape();
    } else if (c == '\'' || c == '"') {
      quote(c);
    } else if (c == '#' && !isInWord_) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (kBreaks.find(c) != std::string_view::npos) {
      endWord();
      advance();
    } else {
      take();
    }
  }
  void escape() {
    advance();
    if (at_ == text_.size()) return;
    if (text_[at_] == '\n')
      advance();  // a line that goes on
    else
      take();
  }
  void quote(char mark) {
    startWord();
    advance();
    while (at_ < text_.size() && text_[at_] != mark) {
      if (mark == '"' && text_[at_] == '$' && expand(true)) continue;
      if (mark == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) advance();
      take();
    }
    if (at_ < text_.size()) advance();
  }
  void startWord() {
    if (isInWord_) return;
    isInWord_ = true;
    word_ = {"", line_};
  }
  void take() {
    startWord();
    word_.text += text_[at_];
    advance();
  }
  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }
  void endWord() {
    if (isInWord_) {
      assign(word_.text);
      words_.push_back(std::move(word_));
    }
    isInWord_ = false;
  }
  // NAME=value and NAME+=value.
  void assign(const std::string& word) {
    size_t name = 0;
    while (name < word.size() && isNameChar(word[name])) ++name;
    const bool adds = word.compare(name, 2, "+=") == 0;
    if (name == 0 || (word[0] >= '0' && word[0] <= '9') || (!adds && word[name] != '=')) return;
    std::string& value = variables_[word.substr(0, name)];
    const std::string added = word.substr(name + (adds ? 2 : 1));
    value = adds ? value + added : added;
    if (value.size() > kMostExpanded) value.clear();
  }
  // $NAME, ${NAME} and ${NAME:-default}; false, and nothing taken, if it is another kind or is not
  // known. Outside of quotes white space in the value ends words.
  bool expand(bool isQuoted) {
    const size_t open = at_ + 1;
    const bool isBraced = open < text_.size() && text_[open] == '{';
    const size_t begin = open + (isBraced ? 1 : 0);
    size_t end = begin;
    while (end < text_.size() && isNameChar(text_[end])) ++end;
    const auto known = variables_.find(text_.substr(begin, end - begin));
    std::string value = known == variables_.end() ? "" : known->second;
    bool isKnown = known != variables_.end() && end > begin;
    if (isBraced) {
      const size_t close = text_.find('}', end);
      if (close == std::string::npos || end == begin) return false;
      const std::string rest = text_.substr(end, close - end);
      if (rest.starts_with(":-") && !isKnown && rest.find('$') == std::string::npos) {
        value = rest.substr(2);
        isKnown = true;
      } else if (!rest.empty() && !rest.starts_with(":-")) {
        return false;
      }
      end = close + 1;
    }
    expanded_ += value.size();
    if (!isKnown || expanded_ > kMostExpanded) return false;
    while (at_ < end) advance();
    for (const char c : value) {
      if (!isQuoted && kBreaks.find(c) != std::string_view::npos) {
        endWord();
        continue;
      }
      startWord();
      word_.text += c;
    }
    return true;
  }

  const std::string& text_;
  std::map<std::string, std::string> variables_;
  size_t expanded_ = 0;  // characters of values
  size_t at_ = 0;
  int line_ = 1;
  bool isInWord_ = false;
  Word word_;
  std::vector<Word> words_;
};

}  // namespace

std::vector<Word> shellWords(const std::string& text) { return Splitter(text).split(); }

}  // namespace trireme::codegen
