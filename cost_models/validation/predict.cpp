#include "cost_models/validation/predict.h"

#include "cost_models/validation/mapping.h"

namespace trireme::cost {

Result<Prediction> predict(const Row& row, const Catalogue& catalogue) {
  TRIREME_ASSIGN_OR_RETURN(RunQuery query, queryOf(row, catalogue));
  TRIREME_ASSIGN_OR_RETURN(const Estimate found,
                           estimate(query.model, query.plan, query.cluster, query.stack));
  Prediction prediction;
  prediction.step = found.step;
  prediction.interval = found.interval;
  prediction.memory = found.memory.total() - found.memory.reserve;
  prediction.fits = found.fits();
  prediction.cluster = query.cluster.name;
  prediction.profile = query.stack.name;
  prediction.assumptions = std::move(query.assumptions);
  return prediction;
}

}  // namespace trireme::cost
