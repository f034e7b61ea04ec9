// The version of Sluice, as its tools print it.
#pragma once

#include <string>
#include <string_view>

namespace sluice::tools {

// "MAJOR.MINOR.PATCH": the first two are those of the C interface (runtime/api/sluice.h), from which the
// files for pkg-config and CMake have theirs, too.
std::string releaseVersion();

// Of the flag --version.
inline constexpr const char* kVersionHelp =
    "print the versions of the tool and of the format of programs and exit";

// What `TOOL --version` prints, without a newline at the end: one line for the tool, one for the newest
// format of programs that it knows, and one for `other`, what else it is made of, where there is something.
std::string versionText(std::string_view tool, std::string_view other = {});

}  // namespace sluice::tools
