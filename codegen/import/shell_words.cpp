#include "codegen/import/shell_words.h"

#include <algorithm>
#include <string_view>

namespace trireme::codegen {
namespace {

constexpr std::string_view kBreaks = " \t\r\n();&|<>";

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
    begin();
    advance();
    while (at_ < text_.size() && text_[at_] != mark) {
      if (mark == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) advance();
      take();
    }
    if (at_ < text_.size()) advance();
  }
  void begin() {
    if (isInWord_) return;
    isInWord_ = true;
    word_ = {"", line_};
  }
  void take() {
    begin();
    word_.text += text_[at_];
    advance();
  }
  void advance() {
    if (text_[at_] == '\n') ++line_;
    ++at_;
  }
  void endWord() {
    if (isInWord_) words_.push_back(std::move(word_));
    isInWord_ = false;
  }

  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
  bool isInWord_ = false;
  Word word_;
  std::vector<Word> words_;
};

}  // namespace

std::vector<Word> shellWords(const std::string& text) { return Splitter(text).split(); }

}  // namespace trireme::codegen
