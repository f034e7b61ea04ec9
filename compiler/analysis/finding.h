// Finding: why an analysis cannot go on, tied to the record it is about, so that a pass can point at the
// source.
//
// Value type. Analyzed<T> is the result of an analysis or the first finding.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <variant>

namespace sluice {

struct Finding {
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

  size_t at = kNowhere;      // index of the node or family in the input of the analysis
  std::string message = {};  // lower case, no full stop
  size_t noteAt = kNowhere;
  std::string note = {};  // empty: none
};

template <class T>
using Analyzed = std::variant<T, Finding>;

}  // namespace sluice
