// How much of a random or exhaustive test is done: SLUICE_PROOF_ROUNDS=N in the environment takes N times as
// much, and a sanitizer, which makes everything ten times as slow, an eighth.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace sluice {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline int proofRounds() {
  const char* text = std::getenv("SLUICE_PROOF_ROUNDS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

// `count` is the number in the suite; more rounds raise it, and a sanitizer lowers it.
inline int proofShare(int count) { return count * proofRounds() / (kSanitized ? 8 : 1); }

}  // namespace sluice
