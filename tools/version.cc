#include "tools/version.h"

#include <fmt/format.h>

#include "runtime/api/sluice.h"
#include "runtime/program/program.h"

namespace sluice::tools {
namespace {

// Changes when neither an interface nor a format changes.
constexpr int kPatch = 0;

}  // namespace

std::string releaseVersion() { return fmt::format("{}.{}.{}", SLUICE_ABI_MAJOR, SLUICE_ABI_MINOR, kPatch); }

std::string versionText(std::string_view tool, std::string_view other) {
  std::string text =
      fmt::format("{} {}\nprogram format {}.{}", tool, releaseVersion(), kFormatMajor, kFormatMinor);
  return other.empty() ? text : fmt::format("{}\n{}", text, other);
}

}  // namespace sluice::tools
