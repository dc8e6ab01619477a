// Which ranks cannot be told apart: they have the same role, and so have their partners, and so on.
// Proofs and simulations need one representative per class; a step of thousands of ranks has a few
// dozen classes (one per pipeline position), and one odd rank adds only those that it can
// influence.
//
// Method: colour refinement (1-dimensional Weisfeiler-Leman) over the groups.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/program/program.h"

namespace trireme::program {

struct Symmetry {
  std::vector<int32_t> classOfRank;
  // Per class, one of its ranks. Classes that meet in pipeline groups have representatives in one
  // and the same pipeline group, so the peer of a representative is a representative.
  std::vector<int32_t> representative;
  std::vector<int32_t> classOfGroup;
  // Per class of groups: the distinct classes of its members.
  std::vector<std::vector<int32_t>> members;
  int32_t numClasses() const { return static_cast<int32_t>(representative.size()); }
};

// Requires ranks and groups that pass (V1). `allRanks`: every rank is a class of its own.
Symmetry findSymmetry(const Program& program, bool allRanks = false);

}  // namespace trireme::program
