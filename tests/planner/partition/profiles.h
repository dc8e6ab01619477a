// Profiles for the tests of the partition solvers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "ir/spec/profile.h"

namespace trireme::planner::testing {

inline spec::ProfileLayer plainLayer(const std::string& id, double seconds, double activation,
                                     double weights) {
  spec::ProfileVariant variant;
  variant.forward = Seconds(seconds / 3);
  variant.backward = Seconds(seconds) - variant.forward;
  variant.weights = Bytes(weights);
  return {id, "", Bytes(activation), {variant}};
}

// Joins layers a and b by an edge that carries the activation of a.
inline void join(spec::ProfileSpec& profile, int32_t a, int32_t b) {
  profile.edges.push_back({a, b, *profile.layers[static_cast<size_t>(a)].activation});
}

inline void joinAll(spec::ProfileSpec& profile) {
  for (int32_t i = 0; static_cast<size_t>(i) + 1 < profile.layers.size(); ++i)
    join(profile, i, i + 1);
}

// A connected graph of `n` layers: a random tree, with edges added at random. Small whole numbers,
// so that ties and zeros occur.
inline spec::ProfileSpec randomProfile(std::mt19937_64& rng, int32_t n, double density) {
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(bound));
  };
  spec::ProfileSpec profile;
  for (int32_t i = 0; i < n; ++i)
    profile.layers.push_back(plainLayer("l" + std::to_string(i), static_cast<double>(below(20)),
                                        static_cast<double>(below(10)),
                                        static_cast<double>(below(10))));
  for (int32_t i = 1; i < n; ++i) {
    const auto parent = static_cast<int32_t>(below(i));
    for (int32_t j = 0; j < i; ++j)
      if (j == parent || static_cast<double>(below(1000)) < 1000 * density) join(profile, j, i);
  }
  return profile;
}

// The layers of `profile` in another order, so that no solver can lean on it.
inline spec::ProfileSpec shuffled(const spec::ProfileSpec& profile, std::mt19937_64& rng) {
  std::vector<int32_t> place(profile.layers.size());
  for (size_t i = 0; i < place.size(); ++i) place[i] = static_cast<int32_t>(i);
  std::shuffle(place.begin(), place.end(), rng);
  spec::ProfileSpec result = profile;
  for (size_t i = 0; i < place.size(); ++i)
    result.layers[static_cast<size_t>(place[i])] = profile.layers[i];
  for (spec::ProfileEdge& edge : result.edges) {
    edge.from = place[static_cast<size_t>(edge.from)];
    edge.to = place[static_cast<size_t>(edge.to)];
  }
  return result;
}

// The path of a published case, or of nothing if TRIREME_REFERENCE does not say where they are.
inline std::string casePath(const std::string& name) {
  const char* folder = std::getenv("TRIREME_REFERENCE");
  return folder ? std::string(folder) + "/cases/" + name : "";
}

}  // namespace trireme::planner::testing
