#include "runtime/comm/wire.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::runtime::wire {
namespace {

constexpr Limits kLimits{4, 1000};

TEST(Wire, AHeaderComesBack) {
  for (const Header header :
       {Header{Kind::kPart, 0xfedcba9876543210u, 1000}, Header{Kind::kWanted, 7, 0}}) {
    const auto decoded = decode(encode(header), kLimits);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message();
    EXPECT_EQ(*decoded, header);
  }
}

TEST(Wire, ABodyThatIsTooLongIsRefused) {
  EXPECT_EQ(decode(encode(Header{Kind::kPart, 0, 1001}), kLimits).error().message(),
            "a frame of kind 11 with 1001 bytes, at most 1000 are allowed");
  EXPECT_FALSE(decode(encode(Header{Kind::kHeartbeat, 0, 1}), kLimits).has_value());
  EXPECT_FALSE(decode(encode(Header{Kind::kSaid, 0, ~uint64_t{0}}), kLimits).has_value());
}

TEST(Wire, AnotherProtocolIsRefused) {
  HeaderBytes bytes{};
  std::string("GET / HTTP/1.1\r\nHost: x").copy(bytes.data(), bytes.size());
  EXPECT_EQ(decode(bytes, kLimits).error().message(), "it does not speak as Trireme does");
}

TEST(Wire, BodiesComeBack) {
  const Hello hello{kVersion, 8, 3, 40123, 0x123456789abcdefu};
  EXPECT_EQ(*decodeHello(encode(hello)), hello);
  const Welcome welcome{42, {{"", 0}, {"10.0.0.7", 65535}, {"fe80::1", 1}}};
  EXPECT_EQ(*decodeWelcome(encode(welcome)), welcome);
  const Failure failure{5, unavailable("it was unplugged")};
  const auto told = decodeFailure(encode(failure));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->rank, 5);
  EXPECT_EQ(told->status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(told->status.message(), "it was unplugged");
  const std::vector<std::string> words = {"", "a", std::string("\0b", 2)};
  EXPECT_EQ(*decodeWords(encode(words), 3), words);
  EXPECT_FALSE(decodeWords(encode(words), 2).has_value());
  EXPECT_FALSE(decodeWords(encode(words), 4).has_value());
}

TEST(Wire, ALongReasonIsCutToWhatAFrameHolds) {
  const Failure failure{1, internalError(std::string(100'000, 'x'))};
  const std::string body = encode(failure);
  EXPECT_LE(body.size(), longestBody(Kind::kFailed, kLimits));
  EXPECT_TRUE(decodeFailure(body).has_value());
}

// What comes from a network may be anything: each answer is a value or an error, never a crash, and
// what is accepted says the same when it is written again.
TEST(Wire, DamagedBytesAreReadOrRefused) {
  std::mt19937_64 random(1);
  const std::vector<std::string> good = {
      encode(Hello{kVersion, 8, 3, 40123, 17}), encode(Welcome{42, {{"", 0}, {"10.0.0.7", 6553}}}),
      encode(Failure{5, unavailable("gone")}), encode(std::vector<std::string>{"", "abc", "d"})};
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good[random() % good.size()];
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    for (uint64_t i = random() % 4; i > 0 && !bytes.empty(); --i)
      bytes[random() % bytes.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    if (const auto hello = decodeHello(bytes); hello.has_value()) {
      EXPECT_EQ(encode(*hello), bytes);
    }
    if (const auto welcome = decodeWelcome(bytes); welcome.has_value()) {
      EXPECT_EQ(encode(*welcome), bytes);
    }
    if (const auto words = decodeWords(bytes, 3); words.has_value()) {
      EXPECT_EQ(encode(*words), bytes);
    }
    static_cast<void>(decodeFailure(bytes));
    HeaderBytes header{};
    bytes.copy(header.data(), header.size());
    if (const auto decoded = decode(header, kLimits); decoded.has_value()) {
      EXPECT_LE(decoded->bytes, longestBody(decoded->kind, kLimits));
    }
  }
}

}  // namespace
}  // namespace trireme::runtime::wire
