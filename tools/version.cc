#include "tools/version.h"

#include <fmt/format.h>

#include "runtime/api/sluice.h"
#include "runtime/program/program.h"

namespace sluice::tools {
namespace {

// Changes when neither an interface nor a format changes.
constexpr int kPatch = 0;

}  // namespace

std::string versionText(std::string_view tool, std::string_view other) {
  // pkg-config and CMake read the version of the C interface in its header, too
  std::string text = fmt::format("{} {}.{}.{}\nprogram format {}.{}", tool, SLUICE_ABI_MAJOR,
                                 SLUICE_ABI_MINOR, kPatch, kFormatMajor, kFormatMinor);
  return other.empty() ? text : fmt::format("{}\n{}", text, other);
}

}  // namespace sluice::tools
