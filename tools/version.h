// The version of Sluice, as its tools print it.
#pragma once

#include <string>
#include <string_view>

namespace sluice::tools {

// The help text of the flag --version.
inline constexpr const char* kVersionHelp =
    "print the versions of the tool and of the format of programs and exit";

// What `TOOL --version` prints, without a newline at the end: one line for the tool, one for the newest
// program format that it knows, and one for `other`, a further component, unless empty.
std::string versionText(std::string_view tool, std::string_view other = {});

}  // namespace sluice::tools
