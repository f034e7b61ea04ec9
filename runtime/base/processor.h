// This machine's processor, as the system reports it.
#pragma once

#include <string>

namespace sluice {

// For example "AMD EPYC"; "unknown" if the system does not report it.
std::string processorName();

// Vendor and family, for example "AuthenticAMD 26": processors of one family have the same units and caches,
// or nearly so. Empty if the system does not report it.
std::string processorFamily();

}  // namespace sluice
