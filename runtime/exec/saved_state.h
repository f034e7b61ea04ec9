// SavedState: one set of saved tensors at a rank: the memory of the regions that are saved, and the routing
// and the state of the entries that filled it.
//
// Resource type. Made by the thread that asks for steps, used by the one that runs them. Memory is reserved
// for the worst case and committed as steps touch it; it lives as long as the set, what other ranks write to
// as long as the transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/exec/device.h"
#include "runtime/exec/plan.h"

namespace sluice {

struct SavedState {
  // Collective: the symmetric regions of a set are one allocation. Errors name the region.
  static Expected<std::unique_ptr<SavedState>> create(const Plan& plan, Device& device, uint32_t number);

  // What the entry saves is not there any more, nor what others made of it.
  void forget(const Plan& plan, EntryId entry);

  uint32_t number = 0;
  std::vector<DeviceMemory> local;  // by region, empty where it is not saved or symmetric
  SymmetricMemory symmetric;
  std::vector<size_t> offsets;  // by region, in that allocation

  // By entry.
  std::vector<RoutingTables> tables;  // filled for entries that route
  std::vector<bool> done;             // what it saves is there
  std::vector<EntryId> staleBy;       // where it was there: who ran since, of whose results it was made
  std::vector<uint64_t> digests;      // of its routing

  // The largest step of an entry so far, on that memory.
  struct Extents {
    const void* memory = nullptr;
    int32_t tokens = 0;
    int32_t rows = 0;
    int32_t pairs = 0;
  };
  std::vector<Extents> largest;   // by entry
  std::vector<int64_t> touched;   // by region: the most bytes of a step so far
  std::atomic<int64_t> bytes{0};  // all of that; read by any thread
};

}  // namespace sluice
