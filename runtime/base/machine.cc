#include "runtime/base/machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace sluice {
namespace {

// The entry of the first processor in /proc/cpuinfo with this name; empty if there is none.
std::string cpuInfo(std::string_view name) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (colon != line.npos && line.substr(0, line.find_last_not_of("\t ", colon - 1) + 1) == name)
      return line.substr(colon + 2);
  }
  return "";
}

using Number = std::optional<int64_t>;

// The number after `name` at the beginning of a line, with or without a colon.
Number field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t value = 0;
    if (words >> first && (first == name || first == name + ":") && words >> value) return value;
  }
  return std::nullopt;
}

// The number in a file; none if the file has "max" or does not exist.
Number numberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? Number(value) : std::nullopt;
}

// The bytes left to a control group. The kernel drops pages of files before it kills a process, but not those
// of shared memory.
Number leftOfGroup(const std::string& folder, const char* limit, const char* usage) {
  const Number most = numberIn(folder + limit), used = numberIn(folder + usage);
  if (!most || !used) return std::nullopt;
  const int64_t files = field(folder + "/memory.stat", "file").value_or(0) +
                        field(folder + "/memory.stat", "total_cache").value_or(0);
  const int64_t shared = field(folder + "/memory.stat", "shmem").value_or(0) +
                         field(folder + "/memory.stat", "total_shmem").value_or(0);
  return *most - *used + std::max<int64_t>(0, files - shared);
}

// The group of this process in the hierarchy of that name, "" if it has none: "0::/a/b", "4:memory:/a/b".
std::string groupPath(const std::string& root, const std::string& hierarchy) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second != std::string::npos && line.substr(first + 1, second - first - 1) == hierarchy)
      return line.substr(second + 1);
  }
  return "";
}

}  // namespace

std::string processorName() {
  const std::string name = cpuInfo("model name");
  return name.empty() ? "unknown" : name;
}

std::string processorModel() {
  const std::string vendor = cpuInfo("vendor_id"), family = cpuInfo("cpu family"), model = cpuInfo("model");
  return vendor.empty() || family.empty() || model.empty() ? "" : vendor + " " + family + " " + model;
}

MemoryLeft memoryLeft(const std::string& root) {
  MemoryLeft left;
  const auto limit = [&](Number bytes, const char* of) {
    if (bytes && *bytes < left.bytes) left = {std::max<int64_t>(0, *bytes), of};
  };
  const std::string info = root + "/proc/meminfo", status = root + "/proc/self/status";
  const int64_t swap = field(info, "SwapFree").value_or(0) * 1024;
  if (const Number free = field(info, "MemAvailable")) limit(*free * 1024 + swap, "this machine");

  const auto limitByGroups = [&](const std::string& tree, std::string path, const char* most,
                                 const char* used) {
    while (true) {
      if (path == "/") path.clear();
      if (const Number bytes = leftOfGroup(root + tree + path, most, used))
        limit(*bytes + swap, "its container");
      if (path.empty()) return;
      path.resize(std::min(path.size(), path.rfind('/')));
    }
  };
  limitByGroups("/sys/fs/cgroup", groupPath(root, ""), "/memory.max", "/memory.current");
  limitByGroups("/sys/fs/cgroup/memory", groupPath(root, "memory"), "/memory.limit_in_bytes",
                "/memory.usage_in_bytes");

  const auto limitBy = [&](auto resource, const char* use, const char* name) {
    rlimit most{};
    const Number used = field(status, use);
    if (!used || getrlimit(resource, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return;
    limit(static_cast<int64_t>(most.rlim_cur) - *used * 1024, name);
  };
  limitBy(RLIMIT_AS, "VmSize", "RLIMIT_AS");
  limitBy(RLIMIT_DATA, "VmData", "RLIMIT_DATA");
  return left;
}

}  // namespace sluice
