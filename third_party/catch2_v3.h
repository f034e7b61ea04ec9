// The <catch2/catch.hpp> of Catch2 2, in terms of Catch2 3: the tests use version 2's names.
#pragma once

#include <catch2/catch_approx.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

// Version 2's Contains is for strings. Version 3 has another one, for elements of a range, in a header of its
// own that this one must not include.
namespace Catch {
namespace Matchers {
inline StringContainsMatcher Contains(const std::string& part,
                                      CaseSensitive sensitivity = CaseSensitive::Yes) {
  return ContainsSubstring(part, sensitivity);
}
}  // namespace Matchers
using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::Matches;
using Matchers::StartsWith;
}  // namespace Catch
using Catch::Approx;
