// Which tensor-axis collectives of a backward pass run beside computation. Internal to ir/expand.
#pragma once
#include "ir/expand/lower_block.h"

namespace trireme::expand {

// A lowered pass reduces a value in front of its first reader, on the compute stream. Here a
// collective is moved up, if there is computation to run it beside, and joined where it was:
//
//   dX = GradInput        dX = GradInput
//   dW = GradWeight       start of the reduction of dX
//   reduction of dX       dW = GradWeight
//   reader of dX          join
//                         reader of dX
//
// (B1) A reduction starts right behind the op that makes what it reduces, if an op lies between
//      that and the place where it was, and if an op reads it afterwards.
// (B2) The gather of a value from before the pass that a GradWeight reads, behind the GradInput of
//      the same product, starts in front of that GradInput, if anything comes before.
//
// A start comes behind the joins at its place: collectives that run beside are done in the order of
// their starts, so a join that came later would wait for it too. Joins name what their starts read
// and write, so that it lives until then.
LoweredPass runBeside(LoweredPass pass);

}  // namespace trireme::expand
