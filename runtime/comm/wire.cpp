#include "runtime/comm/wire.h"

#include <fmt/format.h>

#include <cstring>

namespace trireme::runtime::wire {
namespace {

constexpr uint32_t kMagic = 0x314d5254;  // "TRM1", least significant byte first
constexpr uint64_t kShort = 8192;        // bytes of a text, with what stands around it
constexpr uint64_t kMaxHost = 256;

// Numbers are written least significant byte first.
class Writer {
 public:
  template <typename T>
  void number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
      text_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    text_ += value;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Once something is missing all that follows is as well.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  template <typename T>
  T number() {
    uint64_t value = 0;
    if (text_.size() < sizeof(T)) {
      ok_ = false;
      return 0;
    }
    for (size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<uint64_t>(static_cast<unsigned char>(text_[i])) << (8 * i);
    text_.remove_prefix(sizeof(T));
    return static_cast<T>(value);
  }
  std::string text(uint64_t longest) {
    const auto size = number<uint64_t>();
    if (!ok_ || size > longest || size > text_.size()) {
      ok_ = false;
      return "";
    }
    std::string value(text_.substr(0, static_cast<size_t>(size)));
    text_.remove_prefix(static_cast<size_t>(size));
    return value;
  }
  // Everything was there, and nothing else.
  Status end(const char* what) const {
    return ok_ && text_.empty() ? Status() : invalidArgument(fmt::format("a malformed {}", what));
  }
  bool ok() const { return ok_; }
  size_t left() const { return text_.size(); }

 private:
  std::string_view text_;
  bool ok_ = true;
};

}  // namespace

uint64_t longestBody(Kind kind, const Limits& limits) {
  const auto processes = static_cast<uint64_t>(limits.numProcesses);
  switch (kind) {
    case Kind::kHello:
    case Kind::kRefused:
    case Kind::kFailed:
      return kShort;
    case Kind::kWelcome:
      return kShort + processes * (kMaxHost + 16);
    case Kind::kHeartbeat:
    case Kind::kGoodbye:
    case Kind::kWanted:
      return 0;
    case Kind::kSaid:
      return kMaxWords;
    case Kind::kAllSaid:
      return processes * (kMaxWords + 8);
    case Kind::kMessage:
    case Kind::kPart:
      return limits.messageBytes;
  }
  return 0;
}

HeaderBytes encode(const Header& header) {
  Writer writer;
  writer.number(kMagic);
  writer.number(static_cast<uint32_t>(header.kind));
  writer.number(header.key);
  writer.number(header.bytes);
  const std::string text = writer.take();
  HeaderBytes bytes;
  std::memcpy(bytes.data(), text.data(), bytes.size());
  return bytes;
}

Result<Header> decode(const HeaderBytes& bytes, const Limits& limits) {
  Reader reader({bytes.data(), bytes.size()});
  if (reader.number<uint32_t>() != kMagic)
    return Error(invalidArgument("it does not speak as Trireme does"));
  Header header;
  const auto kind = reader.number<uint32_t>();
  if (kind < static_cast<uint32_t>(Kind::kHello) || kind > static_cast<uint32_t>(kLastKind))
    return Error(invalidArgument(fmt::format("a frame of kind {}", kind)));
  header.kind = static_cast<Kind>(kind);
  header.key = reader.number<uint64_t>();
  header.bytes = reader.number<uint64_t>();
  if (const uint64_t longest = longestBody(header.kind, limits); header.bytes > longest)
    return Error(
        invalidArgument(fmt::format("a frame of kind {} with {} bytes, at most {} are "
                                    "allowed",
                                    kind, header.bytes, longest)));
  return header;
}

std::string encode(const Hello& hello) {
  Writer writer;
  writer.number(hello.version);
  writer.number(hello.numProcesses);
  writer.number(hello.rank);
  writer.number(hello.port);
  writer.number(hello.token);
  return writer.take();
}

Result<Hello> decodeHello(std::string_view body) {
  Reader reader(body);
  Hello hello;
  hello.version = reader.number<uint32_t>();
  hello.numProcesses = reader.number<int32_t>();
  hello.rank = reader.number<int32_t>();
  hello.port = reader.number<int32_t>();
  hello.token = reader.number<uint64_t>();
  TRIREME_RETURN_IF_ERROR(reader.end("greeting"));
  if (hello.port < 0 || hello.port > 65535)
    return Error(invalidArgument(fmt::format("a greeting with port {}", hello.port)));
  return hello;
}

std::string encode(const Welcome& welcome) {
  Writer writer;
  writer.number(welcome.token);
  writer.number(static_cast<uint32_t>(welcome.addresses.size()));
  for (const Address& address : welcome.addresses) {
    writer.text(address.host);
    writer.number(address.port);
  }
  return writer.take();
}

Result<Welcome> decodeWelcome(std::string_view body) {
  Reader reader(body);
  Welcome welcome;
  welcome.token = reader.number<uint64_t>();
  const auto count = reader.number<uint32_t>();
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    Address& address = welcome.addresses.emplace_back();
    address.host = reader.text(kMaxHost);
    address.port = reader.number<int32_t>();
    if (address.port < 0 || address.port > 65535)
      return Error(invalidArgument(fmt::format("an address with port {}", address.port)));
  }
  TRIREME_RETURN_IF_ERROR(reader.end("welcome"));
  return welcome;
}

std::string encode(const Failure& failure) {
  Writer writer;
  writer.number(failure.rank);
  writer.number(static_cast<uint32_t>(failure.status.code()));
  writer.text(std::string_view(failure.status.message()).substr(0, kShort - 64));
  return writer.take();
}

Result<Failure> decodeFailure(std::string_view body) {
  Reader reader(body);
  Failure failure;
  failure.rank = reader.number<int32_t>();
  const auto code = reader.number<uint32_t>();
  const std::string text = reader.text(kShort);
  TRIREME_RETURN_IF_ERROR(reader.end("report of a failure"));
  if (code == 0 || code > static_cast<uint32_t>(StatusCode::kInternal))
    return Error(invalidArgument(fmt::format("a failure of code {}", code)));
  failure.status = Status(static_cast<StatusCode>(code), text);
  return failure;
}

std::string encode(const std::vector<std::string>& words) {
  Writer writer;
  for (const std::string& word : words) writer.text(word);
  return writer.take();
}

Result<std::vector<std::string>> decodeWords(std::string_view body, size_t numWords) {
  Reader reader(body);
  std::vector<std::string> words;
  for (size_t i = 0; i < numWords && reader.ok(); ++i) words.push_back(reader.text(kMaxWords));
  TRIREME_RETURN_IF_ERROR(reader.end("exchange"));
  return words;
}

}  // namespace trireme::runtime::wire
