// How much more memory this process can use before an allocation fails or the process is killed.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

struct MemoryLeft {
  int64_t bytes = INT64_MAX;
  std::string of = "this machine";  // or the tighter limit: "its container", "RLIMIT_AS", "RLIMIT_DATA"
};

// The minimum over the machine (with free swap), the control groups of the process, and its limits on address
// space and data. Values that cannot be read limit nothing. `root`: the folder with /proc and /sys.
MemoryLeft memoryLeft(const std::string& root = "");

}  // namespace sluice
