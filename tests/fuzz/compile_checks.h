// What holds for every file that the compiler is given.
#pragma once

#include <string_view>

#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {

// Aborts unless the compiler makes a verified program of the file, or a report each line of which begins with
// the file's path. The options follow from a hash of the file, so that all of them are tried without a form
// of input of their own.
void requireCompilation(const ScratchFile& file, std::string_view text);

}  // namespace sluice::fuzz
