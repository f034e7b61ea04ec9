// DeviceCopy: what cases have in memory of the host, in memory of a device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/gpu/gpu_backend.h"

namespace sluice::gpu {

// Memory of the host that tasks touch.
using HostRange = std::span<std::byte>;

template <class T>
HostRange rangeOf(const std::vector<T>& values) {
  return std::as_writable_bytes(std::span(const_cast<T*>(values.data()), values.size()));
}

// A resource: of one run.
class DeviceCopy {
 public:
  // Copies ranges that tasks cannot access, of which none has bytes of another. Each lies as far from a
  // multiple of 256 bytes as on the host.
  static Expected<DeviceCopy> make(GpuBackend& backend, std::vector<HostRange> ranges);

  // Replaces an address of the host by that of the copy. What is in no range stays as it is.
  template <class T>
  void translate(T*& pointer) const {
    pointer = static_cast<T*>(const_cast<void*>(addressOf(pointer)));
  }
  // All addresses in what tasks do.
  void translate(StepTables& tables) const;

  // What tasks may access.
  std::vector<MemoryRange> memory() const;

  // Copies back what has changed: what has not may be constant.
  Status copyBack() const;

 private:
  explicit DeviceCopy(GpuBackend& backend) : backend_(backend) {}
  const void* addressOf(const void* pointer) const;

  struct Place {
    HostRange host;
    size_t offset;   // of the copy in memory_
    bool isReached;  // there is none, because tasks access the host's
  };
  std::byte* deviceAddress(const Place& place) const {
    return place.isReached ? place.host.data() : memory_.data + place.offset;
  }

  GpuBackend& backend_;
  std::vector<Place> places_;  // by address of the host
  size_t bytes_ = 0;           // of the copies
  DeviceMemory memory_;
};

}  // namespace sluice::gpu
