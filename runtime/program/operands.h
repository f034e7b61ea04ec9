// The operands of a family by name. Which of them an op has, and where they stand in a family's lists, is
// in the op table (op_table.h).
//
// Values.
#pragma once

#include "runtime/base/id.h"

namespace sluice {

// Those that are absent, or that the op lacks, are none. A name means the same in all ops:
struct Operands {
  // factors of a product or terms of a sum, and the result
  BufferId a, b, bias, addend, c;
  // the scales of codes that a and the weight b have, and zeros of the latter, and a factor of all of them
  BufferId scaleA, scaleB, zeroB, factorB;
  // the largest magnitudes by which a and b are rounded
  BufferId amaxA, amaxB;
  // the activation, and its gradient
  BufferId gateUp, act, actGrad, gateUpGrad, weightedAct;
  // the routing weight of each row, and its gradient
  BufferId rowWeights, rowWeightGrad;
  // what is moved between ranks: of tokens, of their pairs with experts, of rows, and as it returned
  BufferId tokens, weights, tokenScales, tokenScalars;
  BufferId rows, rowScales, rowScalars;
  BufferId returned, returnedScalars;
  // codes that an op makes or a sum reads, the scales of their blocks, and the scales of an expert's last
  // block
  BufferId codes, codeScales, endScales;
  BufferId columnScale;  // by which columns are multiplied before they are quantised
  BufferId amax;
};

using OperandName = BufferId Operands::*;

}  // namespace sluice
