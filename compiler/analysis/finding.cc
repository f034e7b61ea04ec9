#include "compiler/analysis/finding.h"

#include <fmt/format.h>

#include "runtime/base/one_line.h"

namespace sluice {

std::string reportLine(std::string_view source, std::string_view severity, std::string_view message) {
  return oneLine(fmt::format("{}{}{}: {}", source, source.empty() ? "" : ": ", severity, message));
}

}  // namespace sluice
