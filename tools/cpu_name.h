// The name of this machine's processor.
#pragma once

#include <string>

namespace sluice::tools {

// For example "AMD EPYC"; "unknown" if the system does not report it.
std::string cpuName();

}  // namespace sluice::tools
