// Huge pages for large memory: asked for where the system leaves the choice to programs, and counted.
//
// Free functions; any thread. Asking is a hint: a system without them, or without 2 MiB in one piece, gives
// small pages, and nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Memory worth huge pages: smaller blocks would waste most of one.
constexpr bool wantsHugePages(size_t bytes) { return bytes >= 2 * kHugePageBytes; }

// Asks for huge pages in a mapping, before it is touched. Whole huge pages inside it can become such.
void adviseHugePages(void* data, size_t bytes);

// From now on this process gets none, whoever asks.
void refuseHugePages();

// Of all memory of this process for which huge pages were asked.
struct HugePageUse {
  int64_t residentBytes = 0;
  int64_t hugeBytes = 0;
  std::string refusal;  // why the system gives none, or does not say; else empty
};
HugePageUse hugePageUse();

// "huge pages: 312 of 400 MiB", and the refusal where there is one.
std::string describe(const HugePageUse& use);

}  // namespace sluice
