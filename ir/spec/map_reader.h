// Reads the values of one map strictly: every key is known, present once, of the right type.
//
//   MapReader map(file, node);
//   map.required("layers", &model.numLayers);
//   map.optional("name", &model.name);
//   TRIREME_RETURN_IF_ERROR(map.finish());
//
// The keys asked for are the valid ones, so no list of keys can fall behind. The reader keeps the
// first error; `finish` returns, in this order: an unknown key (a typo is the better explanation of
// a missing key), a bad value, all missing keys. A key that may be asked for must be asked for on
// every path.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/spec/sources.h"
#include "ir/spec/suggestion.h"
#include "ir/spec/yaml_node.h"

namespace trireme::spec {

// Why a set of values makes no sense, and the key of the value to change.
struct Problem {
  std::string key;
  std::string message;
};

template <typename T>
struct EnumName {
  std::string_view name;
  T value;
};

template <typename T>
std::string_view nameOf(std::span<const EnumName<T>> names, T value) {
  for (const EnumName<T>& entry : names)
    if (entry.value == value) return entry.name;
  return "?";
}

// Each checks the type and stores the value. Errors carry no place: the reader adds it.
Status readValue(const Node& node, int64_t* out);
Status readValue(const Node& node, uint64_t* out);
Status readValue(const Node& node, double* out);
Status readValue(const Node& node, bool* out);
Status readValue(const Node& node, std::string* out);
Status readValue(const Node& node, Bytes* out);
Status readValue(const Node& node, Seconds* out);
Status readValue(const Node& node, BytesPerSecond* out);
Status readValue(const Node& node, FlopsPerSecond* out);
Status readValue(const Node& node, Watts* out);

class MapReader {
 public:
  // `path` comes before the keys in messages ("device."). `file` and `node` must outlive the
  // reader.
  MapReader(const std::string& file, const Node& node, std::string path = "");

  // Hugging Face writes null for "use the default". Applies to the calls that follow.
  void treatNullAsAbsent() { nullIsAbsent_ = true; }

  // From now on the sources of numbers go here as well, under the paths of the numbers.
  void collectSources(Sources* sources) { sources_ = sources; }

  // The node of a key, which becomes a valid key; null if absent.
  const Node* child(std::string_view key);
  const Node* requiredChild(std::string_view key);
  // No such key at all, not even with null. Does not make it valid.
  bool isAbsent(std::string_view key) const { return node_.find(key) == nullptr; }

  template <typename T>
  void required(std::string_view key, T* out) {
    if (const Node* node = requiredChild(key)) check(*node, readValue(*node, out));
  }
  // Leaves `*out` alone if the key is absent.
  template <typename T>
  void optional(std::string_view key, T* out) {
    if (const Node* node = child(key)) check(*node, readValue(*node, out));
  }
  template <typename T>
  void required(std::string_view key, std::span<const EnumName<T>> names, T* out) {
    if (const Node* node = requiredChild(key)) readEnum(*node, names, out);
  }
  template <typename T>
  void optional(std::string_view key, std::span<const EnumName<T>> names, T* out) {
    if (const Node* node = child(key)) readEnum(*node, names, out);
  }
  // A measured or published number: {value: 80 GiB, source: "who says so"}. Both are mandatory.
  template <typename T>
  void requiredSourced(std::string_view key, T* out) {
    if (const Node* node = requiredChild(key)) readSourced(*node, out);
  }

  // Makes an error of a problem with the value of `node`; only the first is kept.
  void fail(const Node& node, std::string_view message);
  void check(const Node& node, const Status& status);
  // An error that has its place already, of a nested reader.
  void merge(const Status& status);
  // The error of a problem: at its key, or at the map if the key is absent.
  Status errorFor(const Problem& problem) const;

  // The first bad value or, with none, the missing keys so far.
  Status firstValueError() const { return error_.ok() ? missingKeys() : error_; }

  enum class Unknown { kSuggestNearest, kCannotTell };
  Status finish(Unknown unknown = Unknown::kSuggestNearest) const;

  const std::string& file() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  template <typename T>
  void readEnum(const Node& node, std::span<const EnumName<T>> names, T* out) {
    std::vector<std::string> known;
    for (const EnumName<T>& entry : names) {
      if (node.kind == Node::Kind::kScalar && node.text == entry.name) {
        *out = entry.value;
        return;
      }
      known.emplace_back(entry.name);
    }
    failEnum(node, known);
  }
  template <typename T>
  void readSourced(const Node& node, T* out) {
    if (const Node* value = openSourced(node)) {
      const Status status = readValue(*value, out);
      if (!status.ok()) fail(node, *value, "value: " + status.message());
    }
  }
  void failEnum(const Node& node, const std::vector<std::string>& known);
  const Node* openSourced(const Node& node);
  Status missingKeys() const;
  void fail(const Node& named, const Node& place, std::string_view message);

  const std::string& file_;
  const Node& node_;
  std::string path_;
  bool nullIsAbsent_ = false;
  Sources* sources_ = nullptr;
  std::vector<std::string> known_;
  Status error_;
  std::vector<std::string> missing_;
};

}  // namespace trireme::spec
