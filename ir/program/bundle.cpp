#include "ir/program/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "ir/program/bundle_files.h"
#include "ir/program/checksum.h"
#include "ir/program/kernels_json.h"
#include "ir/program/text.h"

namespace trireme::program {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "trireme bundle";
constexpr const char* kManifest = "manifest.json";
constexpr const char* kKernels = "kernels.json";
constexpr const char* kSharedObject = "kernels.so";
constexpr const char* kPtx = "kernels.ptx";
// Always there; those three, and code for GPUs, may be missing.
constexpr std::array kFiles = {"program.bin", kKernels, "plan.yaml", "model.yaml", "listing.txt"};

std::string dump(const json& value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace);
}

// The manifest's own checksum, of the text without it.
uint32_t checksumOf(json manifest) {
  manifest.erase("crc32c");
  return crc32c(dump(manifest));
}

// Names of targets: "sm_80" and "sm_90" of "cuda:sm_80,sm_90", whatever they mean.
std::vector<std::string> targetNames(const std::string& arch) {
  std::vector<std::string> names;
  for (size_t begin = arch.find(':') + 1, end = 0; begin <= arch.size(); begin = end + 1) {
    end = std::min(arch.find(',', begin), arch.size());
    names.push_back(arch.substr(begin, end - begin));
  }
  return names;
}

bool hasSeveralTargets(const Target& target) { return targetNames(target.arch).size() > 1; }

std::string cubinFile(const Target& target, const std::string& name) {
  return hasSeveralTargets(target) ? fmt::format("kernels.{}.cubin", name) : "kernels.cubin";
}

bool isCubinFile(const std::string& name) {
  return name.starts_with("kernels.") && name.ends_with(".cubin");
}

Status writeFile(const std::string& folder, const std::string& name, const std::string& bytes,
                 json& files) {
  files[name] = {{"bytes", bytes.size()}, {"crc32c", crc32c(bytes)}};
  return writeWholeFile(folder + "/" + name, bytes);
}

Status writeInto(const Bundle& bundle, const std::string& folder) {
  json files = json::object();
  TRIREME_RETURN_IF_ERROR(writeFile(folder, "program.bin", serialize(bundle.program), files));
  TRIREME_RETURN_IF_ERROR(writeFile(folder, kKernels, printKernels(bundle.kernels), files));
  TRIREME_RETURN_IF_ERROR(writeFile(folder, "plan.yaml", bundle.planText, files));
  TRIREME_RETURN_IF_ERROR(writeFile(folder, "model.yaml", bundle.modelText, files));
  TRIREME_RETURN_IF_ERROR(writeFile(folder, "listing.txt", printListing(bundle.program), files));
  if (!bundle.sharedObject.empty())
    TRIREME_RETURN_IF_ERROR(writeFile(folder, kSharedObject, bundle.sharedObject, files));
  if (!bundle.ptx.empty()) TRIREME_RETURN_IF_ERROR(writeFile(folder, kPtx, bundle.ptx, files));
  for (const Cubin& cubin : bundle.cubins)
    TRIREME_RETURN_IF_ERROR(
        writeFile(folder, cubinFile(bundle.target, cubin.target), cubin.bytes, files));
  json manifest = {
      {"format", kFormat},
      {"version", hasSeveralTargets(bundle.target) ? kBundleVersion : 1},
      {"name", bundle.name},
      {"summary", bundle.summary},
      {"target", {{"arch", bundle.target.arch}, {"cpuFeatures", bundle.target.cpuFeatures}}},
      {"files", files}};
  manifest["crc32c"] = checksumOf(manifest);
  return writeWholeFile(folder + "/" + kManifest, dump(manifest) + "\n");
}

Status corrupted(const std::string& file, const std::string& why) {
  return invalidArgument(fmt::format("{} is corrupted: {}", file, why));
}

Result<json> readManifest(const std::string& folder) {
  auto text = readWholeFile(folder + "/" + kManifest);
  if (!text) return Error(invalidArgument("not a bundle: " + text.error().message()));
  // The parser takes a NUL for the end of the text.
  const bool isText = text->find('\0') == std::string::npos;
  json manifest = isText ? json::parse(*text, nullptr, false) : json(json::value_t::discarded);
  if (manifest.is_discarded()) return Error(corrupted(kManifest, "not JSON"));
  if (!manifest.is_object() || manifest.value("format", json()) != kFormat)
    return Error(invalidArgument("not a bundle: manifest.json is of another format"));
  // Before the checksum: a newer version may have another.
  const json version = manifest.value("version", json());
  if (!version.is_number_unsigned()) return Error(corrupted(kManifest, "no version"));
  if (version.get<uint64_t>() > kBundleVersion)
    return Error(
        invalidArgument(fmt::format("bundle version {} is newer than {}: use a newer trireme",
                                    version.get<uint64_t>(), kBundleVersion)));
  if (manifest.value("crc32c", json()) != checksumOf(manifest))
    return Error(corrupted(kManifest, "the checksum does not match"));
  return manifest;
}

// The bytes of a file that the manifest describes.
Result<std::string> readFile(const std::string& folder, const std::string& name,
                             const json& files) {
  const json entry = files.value(name, json());
  if (!entry.is_object() || !entry.value("bytes", json()).is_number_unsigned())
    return Error(corrupted(kManifest, fmt::format("no entry for {}", name)));
  auto bytes = readWholeFile(folder + "/" + name);
  if (!bytes) return Error(bytes.error());
  const auto size = entry["bytes"].get<uint64_t>();
  if (bytes->size() < size)
    return Error(
        invalidArgument(fmt::format("{} is truncated: {} bytes of {}", name, bytes->size(), size)));
  if (bytes->size() > size)
    return Error(corrupted(name, fmt::format("{} bytes, expected {}", bytes->size(), size)));
  if (entry.value("crc32c", json()) != crc32c(*bytes))
    return Error(corrupted(name, "the checksum does not match"));
  return bytes;
}

Status readTarget(const json& manifest, Bundle& bundle) {
  const json target = manifest.value("target", json());
  const json name = manifest.value("name", json());
  if (!name.is_string() || !target.is_object() || !target.value("arch", json()).is_string() ||
      !target.value("cpuFeatures", json()).is_array())
    return corrupted(kManifest, "no name or target");
  bundle.name = name.get<std::string>();
  const json summary = manifest.value("summary", json(""));
  if (!summary.is_string()) return corrupted(kManifest, "the summary is not a string");
  bundle.summary = summary.get<std::string>();
  bundle.target.arch = target["arch"].get<std::string>();
  for (const json& feature : target["cpuFeatures"]) {
    if (!feature.is_string()) return corrupted(kManifest, "a CPU feature is not a string");
    bundle.target.cpuFeatures.push_back(feature.get<std::string>());
  }
  return {};
}

Result<Bundle> read(const std::string& folder) {
  TRIREME_ASSIGN_OR_RETURN(const json manifest, readManifest(folder));
  const json files = manifest.value("files", json());
  if (!files.is_object()) return Error(corrupted(kManifest, "no list of files"));
  Bundle bundle;
  TRIREME_RETURN_IF_ERROR(readTarget(manifest, bundle));
  std::array<std::string, kFiles.size()> contents;
  for (size_t i = 0; i < kFiles.size(); ++i) {
    TRIREME_ASSIGN_OR_RETURN(contents[i], readFile(folder, kFiles[i], files));
  }
  if (files.contains(kSharedObject)) {
    TRIREME_ASSIGN_OR_RETURN(bundle.sharedObject, readFile(folder, kSharedObject, files));
  }
  if (files.contains(kPtx)) {
    TRIREME_ASSIGN_OR_RETURN(bundle.ptx, readFile(folder, kPtx, files));
  }
  for (const std::string& name : targetNames(bundle.target.arch)) {
    const std::string file = cubinFile(bundle.target, name);
    if (!files.contains(file)) continue;
    TRIREME_ASSIGN_OR_RETURN(std::string bytes, readFile(folder, file, files));
    bundle.cubins.push_back({name, std::move(bytes)});
  }
  auto program = deserialize(contents[0]);
  if (!program) return Error(program.error().withContext("program.bin"));
  bundle.program = std::move(*program);
  auto kernels = parseKernels(contents[1], bundle.program);
  if (!kernels) return Error(kernels.error().withContext(kKernels));
  bundle.kernels = std::move(*kernels);
  bundle.planText = std::move(contents[2]);
  bundle.modelText = std::move(contents[3]);
  return bundle;
}

// What is about to be replaced and deleted must be ours alone.
Status checkContents(const std::string& folder) {
  namespace fs = std::filesystem;
  if (!exists(folder)) return {};
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(folder, error)))
    return invalidArgument(folder + ": is a link; give the folder that it points to");
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::array optional = {kManifest, kSharedObject, kPtx};
    const bool ours = isCubinFile(name) ||
                      std::find(optional.begin(), optional.end(), name) != optional.end() ||
                      std::find(kFiles.begin(), kFiles.end(), name) != kFiles.end();
    if (!ours)
      return invalidArgument(
          fmt::format("{}: holds {}, which is no file of a bundle; move it away", folder, name));
  }
  if (error) return invalidArgument(fmt::format("{}: {}", folder, error.message()));
  return {};
}

std::string withoutSlash(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

bool isBundle(const std::string& folder) {
  const auto text = readWholeFile(folder + "/" + kManifest);
  if (!text) return false;
  const json manifest = json::parse(*text, nullptr, false);
  return manifest.is_object() && manifest.value("format", json()) == kFormat;
}

Status checkReplaceable(const std::string& folder) {
  const std::string target = withoutSlash(folder);
  std::error_code error;
  const bool empty = std::filesystem::is_directory(target, error) &&
                     std::filesystem::is_empty(target, error) && !error;
  if (exists(target) && !empty && !isBundle(target))
    return invalidArgument(
        fmt::format("{}: exists and is not a bundle; remove it or take another name", target));
  return checkContents(target);
}

Status writeBundle(const Bundle& bundle, const std::string& folder) {
  TRIREME_RETURN_IF_ERROR(checkReplaceable(folder));
  const std::string target = withoutSlash(folder);
  TRIREME_ASSIGN_OR_RETURN(const auto partial, makePartialFolder(target));
  Status status = writeInto(bundle, partial->path());
  if (status.ok()) status = moveIntoPlace(partial->path(), target);
  if (!status.ok())
    static_cast<void>(removeFolder(partial->path()));  // The first error is the one to report.
  return status;
}

Result<Bundle> readBundle(const std::string& folder) {
  auto bundle = read(folder);
  if (!bundle) return Error(bundle.error().withContext(folder));
  return bundle;
}

}  // namespace trireme::program
