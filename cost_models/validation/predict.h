// The prediction of a published row: the one function behind which the cost models stand.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cost_models/estimate.h"
#include "cost_models/validation/catalogue.h"
#include "cost_models/validation/row.h"
#include "ir/base/status.h"
#include "ir/base/units.h"

namespace trireme::cost {

struct Prediction {
  Seconds step;
  std::optional<Interval> interval;  // none: the stack does not say
  Bytes memory;                      // of the fullest device, without its reserve
  bool fits = false;
  std::string cluster, profile;          // their names (clusterFor, stackFor)
  std::vector<std::string> assumptions;  // RunQuery
};

// kInvalidArgument: the row has to be skipped; the message says why (queryOf), or that the cluster
// lacks a number.
Result<Prediction> predict(const Row& row, const Catalogue& catalogue);

}  // namespace trireme::cost
