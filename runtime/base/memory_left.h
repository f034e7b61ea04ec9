// How much more memory this process can use before it is killed or refused some.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct MemoryLeft {
  int64_t bytes = INT64_MAX;
  std::string of = "this machine";  // or what else ends first: "its container", "RLIMIT_AS", "RLIMIT_DATA"
};

// Of the machine (with free swap), the control groups of the process, and its limits of address space and
// data: the least. What cannot be read limits nothing. `root`: where /proc and /sys are.
MemoryLeft memoryLeft(const std::string& root = "");

}  // namespace sluice
