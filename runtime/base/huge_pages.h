// Huge pages for large memory: requested on systems that leave the choice to programs, and counted.
//
// Free functions; any thread. The request is a hint: if the system has none, or no free 2 MiB in one piece,
// it gives small pages, and nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// The minimum size for huge pages: smaller blocks would waste most of one.
constexpr bool wantsHugePages(size_t bytes) { return bytes >= 2 * kHugePageBytes; }

// Requests huge pages for a mapping, before it is touched. Only whole huge pages inside it can become huge
// pages.
void adviseHugePages(void* data, size_t bytes);

// After this call the process gets no huge pages, whatever it requests.
void refuseHugePages();

// The huge pages in all memory for which this process requested them.
struct HugePageUse {
  int64_t residentBytes = 0;
  int64_t hugeBytes = 0;
  std::string refusal;  // why the system gives none, or does not report them; else empty
};
HugePageUse hugePageUse();

// "huge pages: 312 of 400 MiB", and the refusal if there is one.
std::string describe(const HugePageUse& use);

}  // namespace sluice
