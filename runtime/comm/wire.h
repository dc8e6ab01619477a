// What processes say to each other over a connection: frames of a header and a body. Everything
// that is read is checked before it is believed; a frame that is none ends the connection.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace trireme::runtime::wire {

inline constexpr uint32_t kVersion = 1;  // both sides are of the same

enum class Kind : uint8_t {
  kHello = 1,  // Hello: who I am
  kWelcome,    // Welcome: all are here
  kRefused,    // text: why the one who said hello is not let in
  kHeartbeat,  // I am alive
  kFailed,     // Failure: the run is over
  kGoodbye,    // the run is over, and all went well
  kSaid,       // to rank 0: this rank's words of exchange number `key`
  kAllSaid,    // from rank 0: those of all ranks
  kWanted,     // the message `key` may come
  kMessage,    // the message `key`
  kPart,       // a part of collective `key`
};
inline constexpr Kind kLastKind = Kind::kPart;

struct Header {
  Kind kind = Kind::kHeartbeat;
  uint64_t key = 0;
  uint64_t bytes = 0;  // of the body
  bool operator==(const Header&) const = default;
};
inline constexpr size_t kHeaderBytes = 24;
using HeaderBytes = std::array<char, kHeaderBytes>;

struct Limits {
  int64_t numProcesses = 1;
  uint64_t messageBytes = 0;  // of kMessage and kPart
};
// The longest body that a frame of `kind` may have.
uint64_t longestBody(Kind kind, const Limits& limits);

HeaderBytes encode(const Header& header);
// kInvalidArgument: not a header of ours, or one with a body that is too long.
Result<Header> decode(const HeaderBytes& bytes, const Limits& limits);

struct Hello {
  uint32_t version = kVersion;
  int32_t numProcesses = 0;
  int32_t rank = 0;
  int32_t port = 0;    // at which it listens for others; 0: it does not
  uint64_t token = 0;  // of the run, once it is known
  bool operator==(const Hello&) const = default;
};
std::string encode(const Hello& hello);
// All of these: kInvalidArgument, what is wrong.
Result<Hello> decodeHello(std::string_view body);

struct Address {
  std::string host;  // empty: that of rank 0
  int32_t port = 0;
  bool operator==(const Address&) const = default;
};
struct Welcome {
  uint64_t token = 0;
  std::vector<Address> addresses;  // per rank
  bool operator==(const Welcome&) const = default;
};
std::string encode(const Welcome& welcome);
Result<Welcome> decodeWelcome(std::string_view body);

// Why a run is over, and through which rank.
struct Failure {
  int32_t rank = -1;
  Status status;
};
// The text is cut to what a frame holds.
std::string encode(const Failure& failure);
Result<Failure> decodeFailure(std::string_view body);

// The words of an exchange, in rank order.
inline constexpr size_t kMaxWords = size_t{1} << 16;
std::string encode(const std::vector<std::string>& words);
Result<std::vector<std::string>> decodeWords(std::string_view body, size_t numWords);

}  // namespace trireme::runtime::wire
