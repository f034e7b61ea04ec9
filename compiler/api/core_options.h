// The cores for which a program is compiled, by options and target. Free functions on values.
#pragma once

#include <string>
#include <vector>

#include "compiler/api/compile.h"

namespace sluice {

// Reads a list of `N`, or `cube=N`, `vector=N` and `communication=N`, and of `send=N` and `return=N`, each at
// most once. Returns the error, or empty; checkCoreOptions() checks whether the target has such cores.
std::string parseCores(const std::string& text, CompileOptions& options);

// "cube=24,vector=48": the given numbers, as parseCores() reads them; empty if there are none.
std::string coresText(const CompileOptions& options);

// Returns the target, which has separate cube and vector cores, with those numbers of cores. If the number of
// communication cores is not given, it keeps its share of them.
void adjustSeparateCores(Target& target, const SeparateCores& cores);

// `target` has the numbers of cores that the options give. Errors: numbers out of range; cores or fused nodes
// that the target does not have.
Status checkCoreOptions(const Target& target, const CompileOptions& options);

// Adds the consequences of separate cores, and of limits on those that communicate, to `decisions`.
void describeCores(const Target& target, const CompileOptions& options, std::vector<Decision>& decisions);

}  // namespace sluice
