// The one-rank reference of pipelines whose first and last stage share a table.
#pragma once
#include "tests/equivalence/harness.h"

namespace trireme::equivalence {

// A pipeline accumulates the gradient of its first stage's use of the table and that of its last
// stage's apart, and adds them at the step. One rank accumulates both in one buffer, which takes
// less memory and gives another order of the same sum. This changes a program of one rank into one
// that accumulates apart, too: the head's uses in a buffer behind the arena, added to the
// embedding's before the step. For fp32 and fp64, where gradients have the type of activations.
void accumulateUsesApart(program::Program& program);

}  // namespace trireme::equivalence
