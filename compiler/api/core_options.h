// The cores that a program is compiled for, by options and target. Free functions on values.
#pragma once

#include <string>
#include <vector>

#include "compiler/api/compile.h"

namespace sluice {

// Reads `N`, or a list of `cube=N`, `vector=N` and `communication=N`, each at most once. Returns what is
// wrong, or empty; checkCoreOptions() checks whether the target has such cores.
std::string parseCores(const std::string& text, CompileOptions& options);

// "cube=24,vector=48": what is given, as parseCores() reads it.
std::string coresText(const SeparateCores& cores);

// The target, which has separate cube and vector cores, with those cores. Without a number of cores that only
// communicate, it keeps its share of them.
void adjustSeparateCores(Target& target, const SeparateCores& cores);

// Errors: numbers out of range, cores or fused nodes that the target has not; `target` is adjusted.
Status checkCoreOptions(const Target& target, const CompileOptions& options);

// Adds the consequences of separate cores to `decisions`.
void describeCores(const Target& target, std::vector<Decision>& decisions);

}  // namespace sluice
