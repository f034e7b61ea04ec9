#include "runtime/api/make_device.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/gpu/cuda/cuda_device.h"
#include "runtime/gpu/gpu_device.h"

namespace sluice {
namespace {

struct KnownDevice {
  bool (*has)(std::string_view name);
  Expected<DeviceMaker> (*make)(std::string_view name, int ranks);
};

Expected<DeviceMaker> makeCuda(std::string_view name, int ranks) {
  auto backends = findCuda(name, ranks);
  if (!backends) return backends.error();
  return devicesOn(std::move(*backends));
}

constexpr KnownDevice kDevices[] = {
    {[](std::string_view name) { return name == "cpu"; },
     [](std::string_view, int) -> Expected<DeviceMaker> { return DeviceMaker(); }},
    {isCudaName, makeCuda},
};

}  // namespace

Status checkDeviceName(std::string_view name) {
  for (const KnownDevice& known : kDevices)
    if (known.has(name)) return {};
  return Error{fmt::format("device '{}': expected cpu, cuda or cuda:N", name)};
}

Expected<DeviceMaker> makeDevice(std::string_view name, int ranks) {
  for (const KnownDevice& known : kDevices)
    if (known.has(name)) return known.make(name, ranks);
  return checkDeviceName(name).error();
}

}  // namespace sluice
