#include "ir/spec/yaml_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using ::testing::StartsWith;

Result<Node> parseYamlText(const std::string& text) { return parseDocument(text, "f.yaml"); }

TEST(ParseDocument, NodesKnowTheirPlaces) {
  const Node root = parseYamlText("a: 1\nb:\n  - x\n  - c: 'y'\n").value();
  ASSERT_EQ(root.kind, Node::Kind::kMap);
  const Node& list = *root.find("b");
  ASSERT_EQ(list.kind, Node::Kind::kList);
  EXPECT_EQ(list.keyMark.line, 2);
  EXPECT_EQ(list.items[0].mark.line, 3);
  EXPECT_EQ(list.items[0].mark.column, 5);
  const Node& quoted = *list.items[1].find("c");
  EXPECT_EQ(quoted.text, "y");
  EXPECT_TRUE(quoted.quoted);
  EXPECT_FALSE(root.find("a")->quoted);
  EXPECT_EQ(root.find("z"), nullptr);
}

TEST(ParseDocument, ReadsJson) {
  const Node root =
      parseYamlText("{\n\t\"a\": [1, 2.5e-3],\n\t\"b\": null,\n\t\"c\": {}\n}\n").value();
  EXPECT_EQ(root.find("a")->items[1].text, "2.5e-3");
  EXPECT_EQ(root.find("b")->kind, Node::Kind::kNull);
  EXPECT_EQ(root.find("c")->kind, Node::Kind::kMap);
}

TEST(ParseDocument, RefusesDuplicateKeys) {
  EXPECT_EQ(messageOf(parseYamlText("a: 1\nb: 2\na: 3\n")), "f.yaml:3:1: duplicate key 'a'");
}

TEST(ParseDocument, RefusesWhatYamlRefuses) {
  EXPECT_THAT(messageOf(parseYamlText("a: [1, 2\n")), StartsWith("f.yaml:2:1: not valid YAML"));
  EXPECT_THAT(messageOf(parseYamlText("a: 1\n b: 2\n")), StartsWith("f.yaml:2:"));
}

TEST(ParseDocument, RefusesAnEmptyFile) {
  EXPECT_EQ(messageOf(parseYamlText("")), "f.yaml:1:1: the file is empty");
  EXPECT_EQ(messageOf(parseYamlText("# nothing\n")), "f.yaml:1:1: the file is empty");
}

TEST(ParseDocument, RefusesASecondDocument) {
  EXPECT_THAT(messageOf(parseYamlText("a: 1\n---\nb: 2\n")), HasSubstr("expected one document"));
}

TEST(ParseDocument, RefusesAliasesAnchorsAndTags) {
  EXPECT_THAT(messageOf(parseYamlText("a: &x 1\nb: *x\n")),
              HasSubstr("anchors (&name) are not supported"));
  EXPECT_THAT(messageOf(parseYamlText("a: &x [1]\n")), HasSubstr("anchors"));
  EXPECT_THAT(messageOf(parseYamlText("a: !!int 1\n")),
              HasSubstr("tags (!name) are not supported"));
  EXPECT_THAT(messageOf(parseYamlText("a: !x {}\n")), HasSubstr("tags"));
}

TEST(ParseDocument, RefusesAnAliasBombBeforeItGrows) {
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 100; ++i)
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) +
            "]\n";
  EXPECT_THAT(messageOf(parseYamlText(text)), HasSubstr("f.yaml:1:5: anchors"));
}

TEST(ParseDocument, RefusesKeysThatAreNotText) {
  EXPECT_THAT(messageOf(parseYamlText("? [a]\n: 1\n")), HasSubstr("a key must be plain text"));
  EXPECT_THAT(messageOf(parseYamlText("null: 1\n")), HasSubstr("a key must be plain text"));
}

TEST(ParseDocument, RefusesDeepNesting) {
  for (const char* opening : {"[", "{a: ", "- ", "? "}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += opening;
    EXPECT_THAT(messageOf(parseYamlText(text)), StartsWith("f.yaml:1:")) << opening;
  }
}

TEST(ParseDocument, RefusesControlCharactersWithTheirPlace) {
  EXPECT_EQ(messageOf(parseYamlText("a: 1\nbb\x04: 2\n")), "f.yaml:2:3: control character 0x04");
  EXPECT_THAT(messageOf(parseYamlText(std::string("a: \0b", 5))),
              HasSubstr("control character 0x00"));
}

TEST(ParseDocument, RefusesMalformedUtf8) {
  // A lone continuation, an overlong slash, a surrogate, a truncated sequence, beyond U+10FFFF,
  // UTF-16.
  for (const char* bytes :
       {"a: \x80", "a: \xC0\xAF", "a: \xED\xA0\x80", "a: \xE2\x82", "a: \xF4\x90\x80\x80",
        "\xFF\xFE"
        "a"})
    EXPECT_THAT(messageOf(parseYamlText(bytes)), HasSubstr("not valid UTF-8"));
  EXPECT_TRUE(parseYamlText("a: \xC3\xA9\xE2\x82\xAC\xF0\x9F\x9A\xA3\n").has_value());
}

// yaml-cpp turns the escape for U+0085 into the byte 0x85.
TEST(ParseDocument, RefusesEscapesThatDoNotGiveUtf8) {
  EXPECT_EQ(messageOf(parseYamlText("a: \"x\\N\"\n")),
            "f.yaml:1:4: an escape in this text does not give valid UTF-8");
  EXPECT_EQ(parseYamlText("a: \"\\u00e9\"\n")->find("a")->text, "\xC3\xA9");
}

TEST(ParseDocument, RefusesHugeFiles) {
  EXPECT_THAT(messageOf(parseYamlText(std::string(kMaxDocumentBytes + 1, 'a'))),
              HasSubstr("larger than"));
}

TEST(QuoteForMessage, ShortensBetweenCharacters) {
  const std::string shown = quoteForMessage(std::string(47, 'a') +
                                            "\xE2\x82\xAC"
                                            "bcd");
  EXPECT_EQ(shown, "'" + std::string(47, 'a') + "\xE2\x82\xAC...'");
  EXPECT_EQ(quoteForMessage("a\nb"), "'a b'");
}

}  // namespace
}  // namespace trireme::spec
