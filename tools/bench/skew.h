// The values of --skew: "uniform" or "zipf:S". Free function.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "runtime/base/expected.h"

namespace sluice::tools {

// The exponent S; 0 for uniform. Errors: neither of these, or S outside 0 to 10.
inline Expected<double> skewExponent(std::string_view skew) {
  if (skew == "uniform") return 0.0;
  double exponent = -1;
  if (skew.starts_with("zipf:")) {
    const char* const end = skew.data() + skew.size();
    const auto [rest, error] = std::from_chars(skew.data() + 5, end, exponent);
    if (error != std::errc{} || rest != end) exponent = -1;
  }
  if (exponent >= 0 && exponent <= 10) return exponent;
  return Error{fmt::format("found skew '{}', expected uniform or zipf:S with S from 0 to 10", skew)};
}

}  // namespace sluice::tools
