// What MLIR's parser must not be given. It calls itself for each level of nesting and takes any depth, so
// that a small file overflows the stack; it takes bytecode for text; and it copies bytes of the file to the
// terminal.
//
// Free functions; any thread. Linear in the text.
#pragma once

#include <string_view>

#include "runtime/base/expected.h"

namespace sluice {

// Open brackets of all kinds, also those within aliases that are used inside; far more than a program has.
inline constexpr int kMaxMlirDepth = 64;
// Operators of one affine expression, which nests without brackets.
inline constexpr int kMaxMlirOperators = 64;

// Errors begin with `file`, line and column: brackets, aliases or operators nested deeper than the limits, a
// control character but tab, line feed and carriage return (as it is or escaped in a string), bytes that are
// no UTF-8, and MLIR bytecode. Says nothing of any other mistake: that is the parser's. Where the text is cut
// at `marker`, each part is complete in itself.
Status checkMlirText(std::string_view text, std::string_view file, std::string_view marker = {});

}  // namespace sluice
