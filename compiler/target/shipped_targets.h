// The device models of the folder targets, embedded in the program, so that it works wherever it is copied
// to.
//
// The function is generated from the files; any thread may call it.
#pragma once

#include <span>
#include <string_view>

namespace sluice {

struct ShippedTarget {
  std::string_view name;
  std::string_view text;  // of the file
};

// In alphabetical order.
std::span<const ShippedTarget> shippedTargets();

}  // namespace sluice
