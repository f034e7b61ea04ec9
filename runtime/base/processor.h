// This machine's processor, as the system reports it.
#pragma once

#include <string>

namespace sluice {

// For example "AMD EPYC"; "unknown" if the system does not report it.
std::string processorName();

// Vendor, family and model, for example "AuthenticAMD 26 2"; empty if the system does not report them.
std::string processorModel();

}  // namespace sluice
