#include "runtime/base/processor.h"

#include <fstream>
#include <string_view>

namespace sluice {
namespace {

// What /proc/cpuinfo has of the first processor; empty if it does not have that.
std::string entry(std::string_view field) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (colon != line.npos && line.substr(0, line.find_last_not_of("\t ", colon - 1) + 1) == field)
      return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

std::string processorName() {
  const std::string name = entry("model name");
  return name.empty() ? "unknown" : name;
}

std::string processorModel() {
  const std::string vendor = entry("vendor_id"), family = entry("cpu family"), model = entry("model");
  return vendor.empty() || family.empty() || model.empty() ? "" : vendor + " " + family + " " + model;
}

}  // namespace sluice
