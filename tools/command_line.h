// What all tools have in common at their two ends: the command line, and messages on a terminal.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice::tools {

// What is wrong with an argument that is empty, or an option with an empty value ("--out=", or "--out" and
// then an empty argument), by its name; or an empty text. No option of any tool has a use for one: it is the
// variable of a script that was never set, and must not pass for an option that was not given.
std::string findEmptyArgument(int argc, const char* const* argv);

// The text with every control character but line feed and tab, and every byte that is not UTF-8, as \xHH:
// what comes from a file must not move a terminal's cursor.
std::string printable(std::string_view text);

}  // namespace sluice::tools
