// Formulas and large numbers as text, for reports. Free functions.
#pragma once

#include <string>

#include "compiler/analysis/memory.h"

namespace sluice {

// "4096 R + 12 T + 7": T tokens, R rows, P pairs, E experts of a rank. "0" if all terms are 0.
std::string formulaText(const Formula& formula);

// "T = 100, R = P = 200", and E if ranks own different numbers of experts: the step for which
// inBalancedStep() evaluates formulas.
std::string balancedStepText(const TaskProgram& program);

// "1.50 MiB", "12 B".
std::string bytesText(double bytes);

// "2.40 TFLOP", "12 FLOP".
std::string flopsText(double flops);

}  // namespace sluice
