// --expect: parses the routing for which a program is tuned. Free function.
#pragma once

#include <string>

#include "compiler/analysis/cost/routing.h"
#include "runtime/base/expected.h"

namespace sluice {

// "uniform"; "zipf:EXPONENT", from 0 to 10; else a JSON file with a list of numbers, the share (or the count)
// of each expert. Errors describe what is wrong with the argument or the file.
Expected<Expectation> readExpectation(const std::string& text);

}  // namespace sluice
