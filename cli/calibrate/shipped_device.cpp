// Which shipped device a GPU is, by its name and memory.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "cli/calibrate/gpu_cluster.h"
#include "ir/spec/load.h"
#include "ir/spec/shipped.h"

namespace trireme::cli {
namespace {

// Words in capitals: "H100-80GB-SXM" has three.
std::vector<std::string> wordsOf(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Says nothing about which GPU it is: the maker, the memory and its kind, the standard socket.
bool isCommon(const std::string& word) {
  const bool isSize = word.size() > 2 && word.ends_with("GB") &&
                      std::isdigit(static_cast<unsigned char>(word.front()));
  return word == "NVIDIA" || word == "TESLA" || word == "GEFORCE" || isSize ||
         word.starts_with("HBM") || word.starts_with("SXM");
}

bool isNamed(const std::vector<std::string>& gpu, const std::vector<std::string>& device) {
  const auto isIn = [](const std::vector<std::string>& words) {
    return [&](const std::string& word) { return isCommon(word) || contains(words, word); };
  };
  return std::all_of(gpu.begin(), gpu.end(), isIn(device)) &&
         std::all_of(device.begin(), device.end(), isIn(gpu));
}

}  // namespace

std::string shippedDeviceOf(const std::string& gpuName, Bytes memory) {
  constexpr double kClose = 0.08;  // of the memory: drivers and error correction take some
  const std::vector<std::string> words = wordsOf(gpuName);
  std::string found;
  double nearest = kClose;
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kDevice)) {
    spec::Sources sources;
    const Result<spec::DeviceSpec> device = spec::shippedDevice(name, &sources);
    if (!device.has_value() || !isNamed(words, wordsOf(device->name))) continue;
    const double distance = std::abs(memory / device->memory - 1);
    if (distance >= nearest) continue;
    nearest = distance;
    found = name;
  }
  return found;
}

}  // namespace trireme::cli
