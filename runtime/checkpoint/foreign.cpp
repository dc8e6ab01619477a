#include "runtime/checkpoint/foreign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/state/elements.h"

namespace trireme::runtime {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kIndexEnd = ".index.json";
constexpr const char* kProducer = "trireme";

std::string folderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// The tensors of one or several safetensors files by name.
class TensorFiles {
 public:
  static Result<TensorFiles> open(const std::string& path, FileSystem& files) {
    TensorFiles result;
    if (path.ends_with(kIndexEnd)) {
      TRIREME_RETURN_IF_ERROR(result.addIndex(path, files));
      return result;
    }
    if (path.ends_with(".safetensors")) {
      TRIREME_RETURN_IF_ERROR(result.add(path, files));
      return result;
    }
    const std::string folder = path.ends_with('/') ? path : path + "/";
    const std::string index = folder + std::string(kIndex), single = folder + std::string(kSingle);
    if (files.open(single).has_value()) {  // goes before an index, as with transformers
      TRIREME_RETURN_IF_ERROR(result.add(single, files));
      return result;
    }
    if (!files.open(index).has_value())
      return Error(
          invalidArgument(fmt::format("{}: neither a safetensors file nor a folder with {} or {}; "
                                      "of a checkpoint of Trireme's, "
                                      "trireme export-weights makes such a folder",
                                      path, kSingle, kIndex)));
    TRIREME_RETURN_IF_ERROR(result.addIndex(index, files));
    return result;
  }

  struct Place {
    size_t file;
    TensorEntry entry;
  };
  const std::map<std::string, Place>& places() const { return places_; }
  const std::string& pathOf(const Place& place) const { return opened_[place.file].path; }

  Result<std::vector<char>> read(const Place& place) const {
    const Opened& opened = opened_[place.file];
    std::vector<char> bytes(static_cast<size_t>(place.entry.end - place.entry.begin));
    if (Status status = opened.file->read(opened.dataOffset + place.entry.begin, bytes.data(),
                                          static_cast<int64_t>(bytes.size()));
        !status.ok())
      return Error(status.withContext(opened.path));
    return bytes;
  }

  // A file that is a checkpoint of ours; empty: none is.
  const std::string& checkpoint() const { return checkpoint_; }

  // One number per file.
  Result<std::string> fingerprint() const {
    std::vector<std::string> numbers;
    for (const Opened& opened : opened_) {
      TRIREME_ASSIGN_OR_RETURN(const SafetensorsHeader header, readHeader(*opened.file));
      TRIREME_ASSIGN_OR_RETURN(const uint32_t number, fingerprintOf(*opened.file, header));
      numbers.push_back(fmt::format("{:08x}", number));
    }
    return fmt::format("{}", fmt::join(numbers, " "));
  }

 private:
  struct Opened {
    std::string path;
    std::unique_ptr<InputFile> file;
    int64_t dataOffset;
  };

  Status add(const std::string& path, FileSystem& files) {
    TRIREME_ASSIGN_OR_RETURN(auto file, files.open(path));
    Result<SafetensorsHeader> header = readHeader(*file);
    if (!header.has_value()) return header.error().withContext(path);
    if (isCheckpoint(*header) && checkpoint_.empty()) checkpoint_ = path;
    for (TensorEntry& entry : header->tensors) {
      const std::string name = entry.name;
      if (!places_.emplace(name, Place{opened_.size(), std::move(entry)}).second)
        return invalidArgument(fmt::format("{}: tensor {} is in another file too", path, name));
    }
    opened_.push_back({path, std::move(file), header->dataOffset});
    return {};
  }

  Status addIndex(const std::string& path, FileSystem& files) {
    TRIREME_ASSIGN_OR_RETURN(const auto file, files.open(path));
    if (file->size() > kMaxHeaderBytes)
      return invalidArgument(
          fmt::format("{}: {} bytes are too many for an index", path, file->size()));
    std::string text(static_cast<size_t>(file->size()), '\0');
    TRIREME_RETURN_IF_ERROR(file->read(0, text.data(), file->size()));
    const nlohmann::json index = nlohmann::json::parse(text, nullptr, false);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
      return invalidArgument(path + ": needs an object weight_map: tensor to file");
    std::set<std::string> names;
    for (const auto& [tensor, name] : index["weight_map"].items()) {
      if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos)
        return invalidArgument(
            fmt::format("{}: weight_map: {} needs the name of a file beside it", path, tensor));
      names.insert(name.get<std::string>());
    }
    for (const std::string& name : names)
      TRIREME_RETURN_IF_ERROR(add(folderOf(path) + name, files));
    for (const auto& [tensor, name] : index["weight_map"].items())
      if (!places_.contains(tensor))
        return invalidArgument(
            fmt::format("{}: tensor {} is not in {}", path, tensor, name.get<std::string>()));
    return {};
  }

  std::vector<Opened> opened_;
  std::string checkpoint_;
  std::map<std::string, Place> places_;
};

using Places = std::vector<const TensorFiles::Place*>;

// That a tensor which the model has once is the same in both places of the files.
Status checkCopy(const TensorFiles& files, const TensorFiles::Place& copy,
                 const TensorFiles::Place& original) {
  const auto typeOf = [](const TensorEntry& entry) {
    return fmt::format(
        "{} [{}]", entry.otherType.empty() ? std::string(dtypeName(entry.dtype)) : entry.otherType,
        fmt::join(entry.dims, ", "));
  };
  if (typeOf(copy.entry) != typeOf(original.entry))
    return invalidArgument(
        fmt::format("{}: tensor {} is {}, but {}, which is the same tensor of the model, is {}",
                    files.pathOf(copy), copy.entry.name, typeOf(copy.entry), original.entry.name,
                    typeOf(original.entry)));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<char> bytes, files.read(copy));
  TRIREME_ASSIGN_OR_RETURN(const std::vector<char> others, files.read(original));
  if (bytes == others) return {};
  return invalidArgument(fmt::format(
      "{}: tensor {} differs from {}, and the model has one tensor for both; it has two with "
      "tied_embeddings: false (Hugging Face: tie_word_embeddings)",
      files.pathOf(copy), copy.entry.name, original.entry.name));
}

// Where every foreign tensor is. Each must be there in its shape, and nothing else.
Result<Places> match(const ForeignWeights& weights, const TensorFiles& files,
                     const std::string& path) {
  const auto& places = files.places();
  const bool prefixed = places.contains(weights.prefix + weights.tensors.front().name);
  std::set<std::string> wanted;
  Places matched;
  for (const ForeignTensor& tensor : weights.tensors) {
    const std::string prefix = prefixed && tensor.mayHavePrefix ? weights.prefix : "";
    const auto found = places.find(prefix + tensor.name);
    if (found == places.end())
      return Error(invalidArgument(fmt::format("{}: no tensor {}", path, prefix + tensor.name)));
    const TensorEntry& entry = found->second.entry;
    const std::string where = files.pathOf(found->second) + ": tensor " + entry.name;
    if (entry.dims != tensor.dims())
      return Error(invalidArgument(fmt::format("{} is [{}], the model's is [{}]", where,
                                               fmt::join(entry.dims, ", "),
                                               fmt::join(tensor.dims(), ", "))));
    if (!entry.otherType.empty())
      return Error(invalidArgument(
          fmt::format("{} is {}; F64, F32, BF16 and F16 are read", where, entry.otherType)));
    if (entry.dtype == DType::kI32) return Error(invalidArgument(where + " is of integers"));
    wanted.insert(entry.name);
    matched.push_back(&found->second);
  }
  for (const ForeignCopy& copy : weights.copies) {
    const auto found = places.find(copy.name);
    if (found == places.end()) continue;
    TRIREME_RETURN_IF_ERROR(checkCopy(files, found->second, *matched[copy.of]));
    wanted.insert(copy.name);
  }
  for (const auto& [name, place] : places) {
    const auto endsName = [&](const std::string& end) { return name.ends_with(end); };
    if (!wanted.contains(name) &&
        std::none_of(weights.ignored.begin(), weights.ignored.end(), endsName))
      return Error(invalidArgument(
          fmt::format("{}: tensor {} is not of this model", files.pathOf(place), name)));
  }
  return matched;
}

// That every element is a number of `type`.
Status checkFinite(const TensorFiles& files, const Places& places, DType type) {
  for (const TensorFiles::Place* place : places) {
    TRIREME_ASSIGN_OR_RETURN(const std::vector<char> bytes, files.read(*place));
    const int64_t count = static_cast<int64_t>(bytes.size()) / byteSize(place->entry.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const double value = loadElement(bytes.data(), place->entry.dtype, i);
      double stored = 0;
      storeElement(&stored, type, 0, value);
      if (!std::isfinite(loadElement(&stored, type, 0)))
        return invalidArgument(fmt::format("{}: tensor {}, element {}: {} is no finite {}",
                                           files.pathOf(*place), place->entry.name, i, value,
                                           dtypeName(type)));
    }
  }
  return {};
}

int64_t indexOf(const ForeignTensor& tensor, int64_t row, int64_t col) {
  return tensor.isTransposed ? col * tensor.rows + row : row * tensor.cols + col;
}

// Calls visit(element of ours, element of the foreign tensor) for all of the block.
template <typename Visit>
void forEachElement(const OwnTensor& own, const RowBlock& block, const ForeignTensor& foreign,
                    const Visit& visit) {
  for (int64_t i = 0; i < block.count; ++i)
    for (int64_t col = 0; col < own.cols; ++col)
      visit((block.row + i) * own.cols + col, indexOf(foreign, block.foreignRow + i, col));
}

// A checkpoint of ours on its way into a foreign file.
class Writer {
 public:
  Writer(const ForeignWeights& weights, DType type, std::string checkpoint)
      : weights_(weights), type_(type), checkpoint_(std::move(checkpoint)) {}

  Status open(FileSystem& files) {
    TRIREME_ASSIGN_OR_RETURN(input_, files.open(checkpoint_));
    Result<SafetensorsHeader> header = readHeader(*input_);
    if (!header.has_value()) return header.error().withContext(checkpoint_);
    ours_ = *std::move(header);
    if (Status status = checkFile(*input_, ours_, weights_.modelFingerprint); !status.ok())
      return status.withContext(checkpoint_);
    for (const TensorEntry& entry : ours_.tensors) entries_[entry.name] = &entry;
    parts_.resize(weights_.tensors.size());
    for (const OwnTensor& own : weights_.own) TRIREME_RETURN_IF_ERROR(divide(own));
    if (entries_.size() == 3 * weights_.own.size()) return {};  // each with two moments
    return invalidArgument(fmt::format("{}: {} tensors, a checkpoint of this model has {}",
                                       checkpoint_, entries_.size(), 3 * weights_.own.size()));
  }

  Status write(bool withPrefix, OutputFile& file) const {
    const SafetensorsHeader header = headerOf(withPrefix);
    const std::string text = formatHeader(header);
    const auto dataOffset = static_cast<int64_t>(text.size());
    TRIREME_RETURN_IF_ERROR(file.write(0, text.data(), dataOffset));
    for (size_t i = 0; i < weights_.tensors.size(); ++i) {
      TRIREME_ASSIGN_OR_RETURN(const std::vector<char> bytes, assemble(i));
      TRIREME_RETURN_IF_ERROR(file.write(dataOffset + header.tensors[i].begin, bytes.data(),
                                         static_cast<int64_t>(bytes.size())));
    }
    return file.sync();
  }

 private:
  struct Part {
    const OwnTensor* own;
    const RowBlock* block;
  };

  Status divide(const OwnTensor& own) {
    int64_t rows = 0;
    for (const RowBlock& block : own.blocks) {
      parts_[block.foreign].push_back({&own, &block});
      rows += block.count;
    }
    const auto found = entries_.find(own.name);
    if (found == entries_.end())
      return invalidArgument(fmt::format("{}: no tensor {}", checkpoint_, own.name));
    const TensorEntry& entry = *found->second;
    if (entry.otherType.empty() &&
        (entry.end - entry.begin) / byteSize(entry.dtype) == rows * own.cols)
      return {};
    return invalidArgument(fmt::format("{}: tensor {} is [{}], the model's has {} elements",
                                       checkpoint_, own.name, fmt::join(entry.dims, ", "),
                                       rows * own.cols));
  }

  SafetensorsHeader headerOf(bool withPrefix) const {
    SafetensorsHeader header;
    header.metadata["format"] = "pt";
    header.metadata["producer"] = kProducer;
    int64_t at = 0;
    for (const ForeignTensor& tensor : weights_.tensors) {
      const std::string prefix = withPrefix && tensor.mayHavePrefix ? weights_.prefix : "";
      TensorEntry entry{prefix + tensor.name, type_, tensor.dims(), at, 0};
      at += tensor.rows * tensor.cols * byteSize(type_);
      entry.end = at;
      header.tensors.push_back(std::move(entry));
    }
    return header;
  }

  Result<std::vector<char>> assemble(size_t index) const {
    const ForeignTensor& tensor = weights_.tensors[index];
    std::vector<char> bytes(static_cast<size_t>(tensor.rows * tensor.cols * byteSize(type_))), from;
    for (const Part& part : parts_[index]) {
      const TensorEntry& own = *entries_.at(part.own->name);
      from.resize(static_cast<size_t>(own.end - own.begin));
      if (Status status =
              input_->read(ours_.dataOffset + own.begin, from.data(), own.end - own.begin);
          !status.ok())
        return Error(status.withContext(checkpoint_));
      int64_t lost = -1;  // the first element that is no number in this type
      forEachElement(*part.own, *part.block, tensor, [&](int64_t mine, int64_t theirs) {
        storeElement(bytes.data(), type_, theirs, loadElement(from.data(), own.dtype, mine));
        if (lost < 0 && !std::isfinite(loadElement(bytes.data(), type_, theirs))) lost = mine;
      });
      if (lost >= 0)
        return Error(notFinite(own.name, lost, loadElement(from.data(), own.dtype, lost)));
    }
    return bytes;
  }

  Status notFinite(const std::string& tensor, int64_t element, double value) const {
    const std::string what =
        fmt::format("{}: tensor {}, element {}: ", checkpoint_, tensor, element);
    if (!std::isfinite(value))
      return invalidArgument(
          fmt::format("{}{}: the training had diverged; give an earlier checkpoint", what,
                      std::isnan(value) ? "nan" : fmt::format("{}", value)));
    std::vector<std::string_view> holding;
    for (const DType type : {DType::kF32, DType::kBf16, DType::kF16}) {
      double stored = 0;
      storeElement(&stored, type, 0, value);
      if (std::isfinite(loadElement(&stored, type, 0))) holding.push_back(dtypeName(type));
    }
    return invalidArgument(
        fmt::format("{}{} is beyond the numbers of {}; {}", what, value, dtypeName(type_),
                    holding.empty() ? "no other type holds it either"
                                    : fmt::format("{} hold{} it", fmt::join(holding, " and "),
                                                  holding.size() == 1 ? "s" : "")));
  }

  const ForeignWeights& weights_;
  const DType type_;
  const std::string checkpoint_;
  std::unique_ptr<InputFile> input_;
  SafetensorsHeader ours_;
  std::map<std::string, const TensorEntry*> entries_;
  std::vector<std::vector<Part>> parts_;  // of every foreign tensor
};

}  // namespace

std::vector<int64_t> ForeignTensor::dims() const {
  if (isVector) return {rows};
  return isTransposed ? std::vector<int64_t>{cols, rows} : std::vector<int64_t>{rows, cols};
}

Status loadForeignWeights(const TrainingState& state, const ForeignWeights& weights,
                          const std::string& path, FileSystem& files) {
  TRIREME_ASSIGN_OR_RETURN(const TensorFiles opened, TensorFiles::open(path, files));
  if (!opened.checkpoint().empty())
    return invalidArgument(fmt::format(
        "{}: a checkpoint of Trireme, whose training --resume continues; for its weights alone, "
        "trireme export-weights makes a folder of them",
        opened.checkpoint()));
  TRIREME_ASSIGN_OR_RETURN(const Places places, match(weights, opened, path));
  std::map<std::string, const LogicalTensor*> tensors;
  for (const LogicalTensor& tensor : *state.tensors) tensors[tensor.name] = &tensor;
  for (const OwnTensor& own : weights.own)
    if (!tensors.contains(own.name))
      return invalidArgument(fmt::format("the program has no parameter {}", own.name));
  if (tensors.size() != weights.own.size())
    return invalidArgument(fmt::format("the program has {} parameters, the model {}",
                                       tensors.size(), weights.own.size()));
  const DType type = storedType(state, StateKind::kMaster);
  TRIREME_RETURN_IF_ERROR(checkFinite(opened, places, type));
  for (const OwnTensor& own : weights.own) {
    const LogicalTensor& tensor = *tensors[own.name];
    std::vector<char> bytes(static_cast<size_t>(tensor.elements() * byteSize(type)));
    std::map<size_t, std::vector<char>> used;
    for (const RowBlock& block : own.blocks) {
      if (!used.contains(block.foreign)) {
        Result<std::vector<char>> values = opened.read(*places[block.foreign]);
        if (!values.has_value())
          return unavailable("the weights are undefined now: " + values.error().message());
        used[block.foreign] = *std::move(values);
      }
      const char* from = used[block.foreign].data();
      const DType fromType = places[block.foreign]->entry.dtype;
      forEachElement(own, block, weights.tensors[block.foreign], [&](int64_t ours, int64_t theirs) {
        storeElement(bytes.data(), type, ours, loadElement(from, fromType, theirs));
      });
    }
    scatterTensor(state, tensor, StateKind::kMaster, bytes.data());
  }
  return {};
}

std::string describeForeignWeights(const std::string& path, FileSystem& files) {
  const auto describe = [&]() -> Result<std::string> {
    TRIREME_ASSIGN_OR_RETURN(const TensorFiles opened, TensorFiles::open(path, files));
    return opened.fingerprint();
  };
  const Result<std::string> known = describe();
  return known.has_value() ? "of fingerprint " + *known
                           : fmt::format("unreadable ({})", known.error().message());
}

Status writeForeignWeights(const std::string& checkpoint, const ForeignWeights& weights, DType type,
                           bool withPrefix, const std::string& path, FileSystem& files) {
  Writer writer(weights, type, checkpoint);
  TRIREME_RETURN_IF_ERROR(writer.open(files));
  return replaceFile(path, files, [&](OutputFile& file) { return writer.write(withPrefix, file); });
}

bool isWrittenByUs(const std::string& path, FileSystem& files) {
  const auto file = files.open(path);
  if (!file.has_value()) return false;
  const Result<SafetensorsHeader> header = readHeader(**file);
  if (!header.has_value()) return false;
  const auto found = header->metadata.find("producer");
  return found != header->metadata.end() && found->second == kProducer;
}

}  // namespace trireme::runtime
