// This machine: its processor, and how much of its memory is left for this process, as the system reports
// them.
//
// Free functions; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// The name of the processor, for example "AMD EPYC"; "unknown" if the system does not report it.
std::string processorName();

// Its vendor, family and model, for example "AuthenticAMD 26 2"; empty if the system does not report them.
std::string processorModel();

// How much more memory this process can use before an allocation fails or the process is killed.
struct MemoryLeft {
  int64_t bytes = INT64_MAX;
  std::string of = "this machine";  // or the tighter limit: "its container", "RLIMIT_AS", "RLIMIT_DATA"
};

// The minimum over the machine (with free swap), the control groups of the process, and its limits on address
// space and data. Values that cannot be read limit nothing. `root`: the folder with /proc and /sys.
MemoryLeft memoryLeft(const std::string& root = "");

}  // namespace sluice
