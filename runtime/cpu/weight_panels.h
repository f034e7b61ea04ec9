// WeightPanels: the weights of one rank in the form in which kernels multiply by them, packed by the first
// task that needs them and shared by all later ones.
//
// A panel is the part of one expert's weight that one tile of a family reads. Only weights of which the
// caller has promised that they stay have panels, valid until the weight is bound anew. Memory is taken as
// panels are first packed, up to a limit, and kept.
//
// Resource type. Workers call claim() and publish() during a step; the rank's thread calls the rest, between
// steps. A started task never waits: while a panel is being packed by one task, others pack in their own
// scratch as they would without panels. The bits of a product are the same either way.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runtime/abi/kernels.h"
#include "runtime/comm/reservation.h"
#include "runtime/exec/device.h"

namespace sluice {

class WeightPanels {
 public:
  WeightPanels() = default;
  WeightPanels(const Plan& plan, const ops::KernelSet& kernels, int64_t limit);  // bytes of panels

  // What is bound from the next step on, by buffer. Where the version of a weight is another one than before,
  // so is its content; with `constant` it stays until the version changes. Tensors that no product reads as
  // its weight are ignored.
  void bind(std::span<const BoundTensor> bound);

  // Before the tasks of a step. Error: there is no address space for the panels.
  Status beginStep();

  // Whether any task may find a panel in this step.
  bool active() const { return active_; }

  // A claimed panel; without data the task packs in its own scratch. Where `toPack`, the task fills the
  // panel and publishes it.
  struct Panel {
    std::byte* data = nullptr;
    bool toPack = false;
    std::atomic<uint64_t>* state = nullptr;
    uint64_t ready = 0;
  };

  // The panel of a tile, of `bytes` bytes.
  Panel claim(FamilyId family, int32_t expert, int32_t tile, size_t bytes);
  static void publish(const Panel& panel);

  PackedWeights packed() const;

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  struct Weight {
    // the buffer of the weight, and the buffers of scales and zeros that are packed with it
    std::array<BufferId, 3> buffers;
    std::array<uint64_t, 3> versions = {};  // of the bindings
    bool constant = false;
    bool rebound = true;
    uint64_t generation = 0;  // of its content; grows
  };
  // How a family cuts the weight that it reads; families that cut a weight alike share its panels.
  struct Cut {
    uint32_t weight = kNone;  // in weights_
    int32_t n = 0;
    int32_t k = 0;
    int32_t tileN = 0;
    int32_t parts = 0;  // ranges of columns of one tile: two where it covers gate and up
    bool transposed = false;
    ops::ProductTypes types = {};
    ops::PackedScales scales = {};
    Rounding round = Rounding::kNone;
    friend bool operator==(const Cut&, const Cut&) = default;
  };
  struct Set {
    Cut cut;
    int32_t tiles = 0;
    size_t first = 0;  // in panels_
  };
  // Written by the task that holds it (state kPacking) only.
  struct Entry {
    std::atomic<uint64_t> state{0};  // generation * 4 + one of kPacking, kReady, kNoRoom
    std::byte* data = nullptr;       // never changed once it has memory
  };

  uint32_t addWeight(const std::array<BufferId, 3>& buffers);
  uint32_t addSet(const Plan& plan, const ops::KernelSet& kernels, const Family& family);
  std::byte* take(size_t bytes);

  int64_t limit_ = 0;
  std::vector<Weight> weights_;
  std::vector<Set> sets_;
  std::vector<uint32_t> setOf_;  // by family; kNone where it reads no weight of the caller
  std::vector<Entry> panels_;    // by set, expert and tile; made when first of use
  size_t panelCount_ = 0;
  int64_t maxBytes_ = 0;  // of all of them
  bool active_ = false;
  uint64_t generations_ = 0;
  Reservation memory_;
  std::atomic<size_t> used_{0};
};

}  // namespace sluice
