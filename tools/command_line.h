// What all tools share: checks of the command line, standard streams, messages that are safe on a terminal,
// and the version of Sluice.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace sluice::tools {

// An error that names the first empty argument, or option with an empty value ("--out=", or "--out" and then
// an empty argument); otherwise an empty text. No option of any tool accepts an empty value: it comes from a
// variable of a script that was never set, and must not count as an option that was not given.
std::string findEmptyArgument(int argc, const char* const* argv);

// An error for the first option of earlier versions that --encode has replaced, with its spelling now;
// otherwise an empty text.
std::string findOldOption(int argc, const char* const* argv);

// The text with every control character except line feed and tab, and every byte that is not UTF-8, as \xHH:
// text from a file must not control a terminal.
std::string printable(std::string_view text);

// Writes to standard error. Where that is closed, on a full disk or beyond a limit, the text is lost: there
// is no place to say so, and the exit status shows the failure.
void printError(std::string_view text);

// Opens /dev/null as each of standard input, output and error that is closed, so that no file of the tool
// takes its number and gets messages.
void openClosedStreams();

// The help text of the flag --version.
inline constexpr const char* kVersionHelp =
    "print the versions of the tool and of the format of programs and exit";

// What `TOOL --version` prints, without a newline at the end: one line for the tool, one for the newest
// program format that it knows, and one for `other`, a further component, unless empty.
std::string versionText(std::string_view tool, std::string_view other = {});

}  // namespace sluice::tools
