// What options and target say together of the cores a program is compiled for. Free functions on values.
#pragma once

#include <string>
#include <vector>

#include "compiler/api/compile.h"

namespace sluice {

// Reads `N`, or a list of `cube=N`, `vector=N` and `communication=N`, each at most once. Returns what is
// wrong, or empty; whether the target has such cores is for checkCoreOptions() to say.
std::string parseCores(const std::string& text, CompileOptions& options);

// "cube=24,vector=48": what is given, as parseCores() reads it.
std::string coresText(const SeparateCores& cores);

// The target with those cores, which has cube and vector cores apart. Without a number of cores that only
// communicate, it keeps its share of them.
void adjustSeparateCores(Target& target, const SeparateCores& cores);

// Errors: numbers out of range, cores or fused nodes that the target has not; `target` is adjusted.
Status checkCoreOptions(const Target& target, const CompileOptions& options);

// What cores that are apart mean for a program.
void tellCores(const Target& target, std::vector<Decision>& decisions);

}  // namespace sluice
