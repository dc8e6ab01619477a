// The one symbol of libtrireme_generator.so.
#include "codegen/generator.h"

#include "ir/base/version.h"
#include "ir/dialect/model_graph.h"

extern "C" {
extern const trireme::codegen::Generator triremeGenerator;
const trireme::codegen::Generator triremeGenerator = {
    trireme::kBuild, trireme::codegen::compileSegments, trireme::dialect::printModelGraph};
}
