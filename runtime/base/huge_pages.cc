#include "runtime/base/huge_pages.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cstdio>
#include <fstream>

namespace sluice {
namespace {

constexpr int64_t kMiB = 1 << 20;

// The reason why this process gets no huge pages, as far as the system reports it.
std::string findRefusal() {
  if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1) return "switched off for this process";
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  if (!std::getline(file, modes)) return "this system has none";
  if (modes.find("[never]") != std::string::npos)
    return "this system gives none (transparent_hugepage is never)";
  return {};
}

// "Rss:      1234 kB" -> bytes, if the line has that name.
bool readField(const std::string& line, const char* name, int64_t& bytes) {
  const std::string prefix = std::string(name) + ":";
  if (line.compare(0, prefix.size(), prefix) != 0) return false;
  long long kilobytes = 0;
  if (std::sscanf(line.c_str() + prefix.size(), "%lld", &kilobytes) == 1) bytes = kilobytes * 1024;
  return true;
}

}  // namespace

void adviseHugePages(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  // madvise needs whole pages
  const auto begin = (reinterpret_cast<uintptr_t>(data) + 4095) / 4096 * 4096;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / 4096 * 4096;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(data);
  static_cast<void>(bytes);
#endif
}

void refuseHugePages() { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

HugePageUse hugePageUse() {
  HugePageUse use;
  use.refusal = findRefusal();
  std::ifstream maps("/proc/self/smaps");
  if (!maps) {
    if (use.refusal.empty()) use.refusal = "this system does not say (no /proc/self/smaps)";
    return use;
  }
  // a mapping's fields precede its flags, where "hg" shows that huge pages were requested
  int64_t resident = 0, huge = 0;
  for (std::string line; std::getline(maps, line);) {
    if (readField(line, "Rss", resident) || readField(line, "AnonHugePages", huge)) continue;
    if (line.compare(0, 8, "VmFlags:") != 0 || line.find(" hg") == std::string::npos) continue;
    use.residentBytes += resident;
    use.hugeBytes += huge;
  }
  return use;
}

std::string describe(const HugePageUse& use) {
  std::string text =
      fmt::format("huge pages: {} of {} MiB", use.hugeBytes / kMiB, (use.residentBytes + kMiB / 2) / kMiB);
  if (!use.refusal.empty()) text += ": " + use.refusal;
  return text;
}

}  // namespace sluice
