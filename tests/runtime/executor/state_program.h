// A program that is all state: parameters of every kind of sharding, and a step that takes each
// parameter as its own gradient, so that the gradient's norm is that of the weights.
//
//   embedding      [6, 5], padded to [8, 5], split over tp by rows; tied: stage 1 has a copy
//   layers.{0-2}.w [5, 4], split over tp by columns
//   norm           [7], on every tp member; in a bucket that is never sharded
//
// With `sharded`, the first bucket is sharded over dp, at places that fit no parameter.
#pragma once
#include "ir/program/bundle.h"

namespace trireme::runtime {

struct StateOptions {
  int32_t tp = 1, dp = 1;
  bool sharded = false;
  bool bf16 = false;  // parameters; the state is f32
  bool adamW = false;
  bool pieces = false;  // the layers are a bucket of their own, a piece each
};

inline constexpr uint64_t kStateSeed = 21;

program::Bundle stateBundle(const StateOptions& options);

}  // namespace trireme::runtime
