#include "ir/spec/json_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<Node> parseJsonText(const std::string& text) { return parseDocument(text, "f.json"); }

const char* kText =
    "{\n"
    "  \"a\": [1, -2.50e-3 ,true,[false],null],\n"
    "\t\"b\" : {\"c\":\"1\", \"d\":{}},\n"
    "  \"e\":[]}\n";

void expectSame(const Node& a, const Node& b) {
  SCOPED_TRACE(a.key);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.mark.line, b.mark.line);
  EXPECT_EQ(a.mark.column, b.mark.column);
  EXPECT_EQ(a.keyMark.column, b.keyMark.column);
  EXPECT_TRUE(a.kind != Node::Kind::kScalar || a.quoted == b.quoted);
  ASSERT_EQ(a.items.size(), b.items.size());
  for (size_t i = 0; i < a.items.size(); ++i) expectSame(a.items[i], b.items[i]);
}

// Values, spelling of numbers and every place.
TEST(ParseJson, GivesTheTreeThatTheYamlReaderGives) {
  expectSame(parseJsonText(kText).value(), parseDocument(kText, "f.yaml").value());
}

TEST(ParseJson, ReadsAllOfUnicode) {
  const Node root =
      parseJsonText("{\"name\": \"caf\\u00e9 \\ud83d\\ude00 \\/ caf\xC3\xA9\", \"next\": 1}")
          .value();
  EXPECT_EQ(root.find("name")->text, "caf\xC3\xA9 \xF0\x9F\x98\x80 / caf\xC3\xA9");
  // Columns count characters.
  EXPECT_EQ(root.find("next")->keyMark.column, 44);
}

TEST(ParseJson, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(messageOf(parseJsonText("{\"a\": 1,\n \"b\": [2, 3")),
            "f.json:2:12: not valid JSON: syntax error while parsing array - unexpected end of "
            "input; expected ']'");
  EXPECT_THAT(messageOf(parseJsonText("{\"a\": \"tex")), HasSubstr("missing closing quote"));
  EXPECT_THAT(messageOf(parseJsonText("\xC3\xBF")), HasSubstr("last read: '?'"));
  EXPECT_THAT(messageOf(parseJsonText("{a: 1}")), StartsWith("f.json:1:3: not valid JSON: "));
  EXPECT_THAT(messageOf(parseJsonText("{\"a\": 1} x")), HasSubstr("expected end of input"));
  EXPECT_THAT(messageOf(parseJsonText("{\"a\": 1e999}")),
              HasSubstr("not valid JSON: number overflow"));
  EXPECT_THAT(messageOf(parseJsonText("{\"a\": \"\\ud83d\"}")), HasSubstr("surrogate"));
  EXPECT_EQ(messageOf(parseJsonText("{\"a\": 1,\n \"a\": 2}")), "f.json:2:2: duplicate key 'a'");
  EXPECT_EQ(messageOf(parseJsonText(" \n")), "f.json:1:1: the file is empty");
  EXPECT_THAT(messageOf(parseJsonText(std::string(65, '['))),
              HasSubstr("1:65: nested deeper than 64 levels"));
  EXPECT_LT(messageOf(parseJsonText("{\"" + std::string(100000, 'x'))).size(), 300u);
}

// Whatever is cut off or changed, there is a tree or a message with a place.
TEST(ParseJson, DamageIsAnErrorWithAPlace) {
  const std::string text = kText;
  const size_t end = text.rfind('}');
  for (size_t length = 0; length <= end; ++length)
    EXPECT_THAT(messageOf(parseJsonText(text.substr(0, length))), StartsWith("f.json:"));
  for (size_t i = 0; i < text.size(); ++i)
    for (const char c : std::string("{}[],:\"\\0e-tn \n")) {
      std::string damaged = text;
      damaged[i] = c;
      const Result<Node> root = parseJsonText(damaged);
      EXPECT_TRUE(root.has_value() || messageOf(root).starts_with("f.json:")) << damaged;
    }
}

}  // namespace
}  // namespace trireme::spec
