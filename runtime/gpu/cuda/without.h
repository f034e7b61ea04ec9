// What a build without CUDA says.
#pragma once

namespace sluice {

inline constexpr const char* kWithout = "Sluice was built without CUDA: nvcc was not found";

}  // namespace sluice
