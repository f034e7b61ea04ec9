// Finding: the reason why an analysis of nodes failed, with the node that it concerns, so that a pass can
// point at the source. Families of a program carry their own place; errorAt() names it.
//
// Value type. Analyzed<T> is the result of an analysis or the first finding.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/base/expected.h"
#include "runtime/base/one_line.h"
#include "runtime/program/program.h"

namespace sluice {

struct Finding {
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

  size_t at = kNowhere;      // index of the node in the input of the analysis
  std::string message = {};  // lower case, no full stop
  size_t noteAt = kNowhere;
  std::string note = {};  // empty: none
};

template <class T>
using Analyzed = std::variant<T, Finding>;

// One line of an error report: "file:line:column: error: message", or "error: message" if `source`, the place
// of a node, is empty. `severity` is "error" or "note".
inline std::string reportLine(std::string_view source, std::string_view severity, std::string_view message) {
  std::string line(source);
  if (!source.empty()) line += ": ";
  return oneLine(line.append(severity).append(": ").append(message));
}

// The error about one family, with the place of its node.
inline Error errorAt(const Family& family, std::string_view message) {
  return Error{reportLine(family.source, "error", message)};
}

}  // namespace sluice
