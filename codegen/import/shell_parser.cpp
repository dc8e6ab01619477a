#include "codegen/import/shell_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trireme::codegen {
namespace {

using Kind = ShellCommand::Kind;
using Join = ShellCommand::Join;
using Token = ShellLexer::Token;

constexpr int kDeepestCommands = 50;  // of commands inside of each other

std::string unquoted(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
  return text;
}

class Parser {
 public:
  Parser(const std::string& text, std::string file, int line)
      : lexer_(text, line), file_(std::move(file)) {}

  Result<ShellList> parse() {
    ShellList list = listUntil({});
    if (error_.ok() && !isEnd()) fail(fmt::format("'{}' without its beginning", peek().word.text));
    if (lexer_.openLine())
      error_ =
          invalidArgument(fmt::format("{}:{}: a quote or parenthesis that begins here does not end",
                                      file_, *lexer_.openLine()));
    if (!error_.ok()) return Error(error_);
    return list;
  }

 private:
  const Token& peek() { return lexer_.peek(); }
  bool isEnd() { return !error_.ok() || peek().kind == ShellLexer::Kind::kEnd; }
  bool isOperator(std::string_view text) {
    return peek().kind == ShellLexer::Kind::kOperator && peek().word.text == text;
  }
  bool isWord(std::string_view text) {
    return peek().kind == ShellLexer::Kind::kWord && peek().word.text == text;
  }
  bool isOneOf(const std::vector<std::string_view>& texts) {
    return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return isWord(text) || (text.find_first_of(");") == 0 && isOperator(text));
    });
  }
  bool take(std::string_view text) {
    if (isEnd() || (!isWord(text) && !isOperator(text))) return false;
    lexer_.next();
    return true;
  }
  void fail(const std::string& message) {
    if (error_.ok())
      error_ = invalidArgument(fmt::format("{}:{}: cannot be read as a shell script: {}", file_,
                                           peek().word.line, message));
  }
  void need(std::string_view text, std::string_view opening) {
    if (!take(text)) fail(fmt::format("'{}' without '{}'", opening, text));
  }
  void skipNewlines() {
    while (!isEnd() && peek().kind == ShellLexer::Kind::kNewline) lexer_.next();
  }

  // Commands up to one of the words, which is not taken.
  ShellList listUntil(const std::vector<std::string_view>& ends) {
    ShellList list;
    Join join = Join::kAlways;
    while (!isEnd()) {
      if (peek().kind == ShellLexer::Kind::kNewline || isOperator(";") || isOperator("&")) {
        // && at the end of a line goes on.
        if (peek().kind != ShellLexer::Kind::kNewline) join = Join::kAlways;
        lexer_.next();
        continue;
      }
      if (isOneOf(ends)) break;
      list.push_back(command());
      list.back().join = join;
      join = take("&&")                ? Join::kAnd
             : take("||")              ? Join::kOr
             : take("|") || take("|&") ? Join::kPipe
                                       : Join::kAlways;
    }
    return list;
  }

  ShellCommand command() {
    ShellCommand made;
    if (++depth_ > kDeepestCommands) fail("too many commands inside of each other");
    while (take("!")) made.isNegated = !made.isNegated;
    take("time");
    made.line = peek().word.line;
    if (take("if")) {
      readIf(made);
    } else if (take("case")) {
      readCase(made);
    } else if (take("for") || take("select")) {
      readFor(made);
    } else if (isWord("while") || isWord("until")) {
      made.kind = isWord("while") ? Kind::kWhile : Kind::kUntil;
      lexer_.next();
      made.branches.push_back({{}, listUntil({"do"}), {}});
      readDo(made);
    } else if (take("{")) {
      made.kind = Kind::kGroup;
      made.branches.push_back({{}, {}, listUntil({"}"})});
      need("}", "{");
    } else if (take("(")) {
      made.kind = Kind::kSubshell;
      made.branches.push_back({{}, {}, listUntil({")"})});
      need(")", "(");
    } else if (take("function")) {
      readFunction(made, lexer_.next().word);
    } else if (take("[[")) {
      readTest(made);
    } else if (peek().kind == ShellLexer::Kind::kArithmetic) {
      made.kind = Kind::kArithmetic;
      made.words.push_back(lexer_.next().word);
    } else {
      readSimple(made);
    }
    if (made.kind != Kind::kSimple && made.kind != Kind::kFunction) readRedirections(made);
    --depth_;
    return made;
  }

  void readIf(ShellCommand& made) {
    made.kind = Kind::kIf;
    do {
      ShellList condition = listUntil({"then"});
      need("then", "if");
      made.branches.push_back({{}, std::move(condition), listUntil({"elif", "else", "fi"})});
    } while (take("elif"));
    if (take("else")) made.branches.push_back({{}, {}, listUntil({"fi"})});
    need("fi", "if");
  }
  void readCase(ShellCommand& made) {
    made.kind = Kind::kCase;
    made.words.push_back(lexer_.next().word);
    skipNewlines();
    need("in", "case");
    for (skipNewlines(); !isEnd() && !isWord("esac"); skipNewlines()) {
      ShellBranch branch;
      take("(");
      do branch.patterns.push_back(lexer_.next().word);
      while (take("|"));
      need(")", "case");
      branch.body = listUntil({";;", ";&", ";;&", "esac"});
      if (isOperator(";&") || isOperator(";;&")) fail("';&' of case; end the branch with ';;'");
      take(";;");
      made.branches.push_back(std::move(branch));
    }
    need("esac", "case");
  }
  void readFor(ShellCommand& made) {
    made.kind = Kind::kFor;
    const bool isArithmetic = peek().kind == ShellLexer::Kind::kArithmetic;
    made.words.push_back(lexer_.next().word);
    if (isArithmetic) made.words.back().text = "_";
    skipNewlines();
    if (take("in")) {
      while (!isEnd() && peek().kind == ShellLexer::Kind::kWord)
        made.words.push_back(lexer_.next().word);
    } else {
      made.words.push_back({isArithmetic ? "$((i))" : "\"$@\"", made.line, {}});
    }
    take(";");
    skipNewlines();
    made.branches.emplace_back();
    readDo(made);
  }
  void readDo(ShellCommand& made) {
    skipNewlines();
    need("do", "for' or 'while");
    made.branches.back().body = listUntil({"done"});
    need("done", "do");
  }
  void readFunction(ShellCommand& made, ShellWord name) {
    made.kind = Kind::kFunction;
    made.words = {std::move(name)};
    if (take("(")) need(")", "(");
    skipNewlines();
    made.branches.push_back({{}, {}, {}});
    if (!isEnd()) made.branches.back().body.push_back(command());
  }
  void readTest(ShellCommand& made) {
    made.kind = Kind::kTest;
    while (!isEnd() && !isWord("]]")) {
      Token token = lexer_.next();
      if (token.kind != ShellLexer::Kind::kNewline) made.words.push_back(std::move(token.word));
    }
    need("]]", "[[");
  }
  void readSimple(ShellCommand& made) {
    while (!isEnd()) {
      if (peek().kind == ShellLexer::Kind::kWord) {
        made.words.push_back(lexer_.next().word);
        if (made.words.size() == 1 && isOperator("(") && !made.words[0].elements)
          return readFunction(made, std::move(made.words[0]));
      } else if (!readRedirection(made)) {
        break;
      }
    }
    if (made.words.empty() && error_.ok() && made.hereDocument.empty() && !redirects_)
      fail(isEnd() ? "a command is missing"
                   : fmt::format("'{}' is not expected", peek().word.text));
    redirects_ = false;
  }
  void readRedirections(ShellCommand& made) {
    while (!isEnd() && readRedirection(made)) continue;
    redirects_ = false;
  }
  bool readRedirection(ShellCommand& made) {
    if (peek().kind != ShellLexer::Kind::kOperator ||
        peek().word.text.find_first_of("<>") == std::string::npos)
      return false;
    const std::string op = lexer_.next().word.text;
    redirects_ = true;
    if (peek().kind != ShellLexer::Kind::kWord) {
      fail(fmt::format("nothing behind '{}'", op));
      return false;
    }
    const std::string target = lexer_.next().word.text;
    if (op == "<<" || op == "<<-") {
      const std::string mark = unquoted(target);
      made.isHereLiteral = mark != target;
      made.hereDocument += lexer_.takeHereDocument(mark, op == "<<-");
    }
    return true;
  }

  ShellLexer lexer_;
  std::string file_;
  Status error_;
  int depth_ = 0;
  bool redirects_ = false;
};

}  // namespace

Result<ShellList> parseShell(const std::string& text, const std::string& file, int line) {
  return Parser(text, file, line).parse();
}

}  // namespace trireme::codegen
