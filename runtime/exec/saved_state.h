// SavedState: one set of saved tensors at a rank: the memory of the saved regions, and the routing and state
// of the entries that filled it.
//
// Resource type. Made by the thread that requests steps, used by the one that runs them. Memory is reserved
// for the worst case and committed as steps touch it. It lives as long as the set; memory to which other
// ranks write lives as long as the transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/exec/device.h"
#include "runtime/exec/plan.h"

namespace sluice {

struct SavedState {
  // Collective: the symmetric regions of a set are one allocation. Errors name the region.
  static Expected<std::unique_ptr<SavedState>> create(const Plan& plan, Device& device, uint32_t number);

  // Marks what the entry saves, and everything computed from it, as no longer available.
  void forget(const Plan& plan, EntryId entry);

  uint32_t number = 0;
  std::vector<DeviceMemory> local;  // by region; empty if it is not saved, or is symmetric
  SymmetricMemory symmetric;
  std::vector<size_t> offsets;  // by region: offset in `symmetric`

  // By entry.
  std::vector<RoutingTables> tables;  // filled for entries that route
  std::vector<bool> done;             // its saved tensors are available
  std::vector<EntryId> staleBy;       // if no longer: the entry whose new run made them stale
  std::vector<uint64_t> digests;      // of its routing

  // The largest step of an entry so far, on that memory.
  struct Extents {
    const void* memory = nullptr;
    int32_t tokens = 0;
    int32_t rows = 0;
    int32_t returned = 0;
  };
  std::vector<Extents> largest;   // by entry
  std::vector<int64_t> touched;   // by region: the most bytes that a step has used so far
  std::atomic<int64_t> bytes{0};  // sum of `touched`; read by any thread
};

// The sets of one context, or of several that share them. Any thread.
class SavedStates {
 public:
  // The set with this number; collective if it does not exist yet. Errors: as SavedState::create().
  Expected<SavedState*> get(const Plan& plan, Device& device, uint32_t number);
  // The bytes of all sets that steps have touched.
  int64_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<SavedState>> states_;
};

}  // namespace sluice
