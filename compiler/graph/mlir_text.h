// Checks for texts that MLIR's parser must not get. It recurses for each level of nesting without a limit, so
// a small file overflows the stack; it accepts bytecode as text; and it copies bytes of the file to the
// terminal.
//
// Free functions; any thread. Linear in the text.
#pragma once

#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

// Open brackets of all kinds, including those in the aliases that are used inside; far more than a program
// has.
inline constexpr int kMaxMlirDepth = 64;
// Operators of one affine expression, which nests without brackets.
inline constexpr int kMaxMlirOperators = 64;

// Errors begin with `file`, line and column: brackets, aliases or operators nested deeper than the limits, a
// control character other than tab, line feed and carriage return (literal or escaped in a string), bytes
// that are not UTF-8, and MLIR bytecode. All other mistakes are left to the parser. If the text is cut at
// `marker`, each part is complete in itself.
Status checkMlirText(std::string_view text, std::string_view file, std::string_view marker = {});

}  // namespace sluice
