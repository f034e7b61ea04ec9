// RankState: one rank's memory, tables and events, and the bind that turns a step's routing into a Step.
//
// Resource type; used by one thread at a time. In steady state (a token count and routing of a size seen
// before) a step allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/reservation.h"
#include "runtime/exec/exchange.h"
#include "runtime/exec/identity.h"
#include "runtime/exec/step.h"
#include "runtime/exec/weight_panels.h"

namespace sluice {

// A tensor of the caller, as bound. `tokens` is its first dimension where that is a run-time extent.
struct BoundTensor {
  std::byte* data = nullptr;
  int64_t extent = 0;
  bool bound = false;
};

class RankState {
 public:
  // Collective: symmetric memory is allocated in the same order by all ranks. Waits for nobody, where the
  // transport's allocate() does not. Errors abort the transport, since the others cannot go on.
  static Expected<std::unique_ptr<RankState>> create(std::shared_ptr<const Plan> plan, Transport& transport,
                                                     const PanelOptions& panels = {});

  // The shape and type were checked by the caller; `extent` is the first dimension. `constant`: the content
  // stays until the tensor is bound again.
  void bindTensor(BufferId buffer, std::byte* data, int64_t extent, bool constant = false) {
    bound_[buffer.value] = {data, extent, true};
    panels_->bind(buffer, constant);
  }

  // Of the steps to come.
  void setWork(WorkKind work) { step_.work = work; }

  // Everything between run() and the first task. Errors: tensors not bound or of different T, ids out of
  // range or repeated, saved tensors that are not there; a peer's failure. What is found before the counts
  // are posted fails the step at all ranks and leaves them usable.
  Expected<const Step*> bindStep(EntryId entry, double timeoutSeconds);

  // After the last task: clears the counters; what the entry saves is there for later entries.
  void finishStep(EntryId entry);

  // When the last bind began to exchange counts and when it had them all, as monotonicNanoseconds().
  std::pair<int64_t, int64_t> lastExchange() const { return exchanged_; }

  const RoutingTables& tables(EntryId entry) const { return tables_[entry.value]; }
  const Step& step() const { return step_; }
  const Plan& plan() const { return *plan_; }
  bool hasRun(EntryId entry) const { return done_[entry.value]; }
  PanelStats panelStats() const { return panels_->stats(); }

 private:
  RankState() = default;
  Status allocate();
  Status checkBound(EntryId entry, int64_t& tokens) const;
  Status checkSaved(EntryId entry, int64_t tokens) const;
  Status route(EntryId entry, int64_t tokens);
  Status checkTotals() const;
  Status checkRows(EntryId entry) const;
  void fillAddresses(EntryId entry);

  std::shared_ptr<const Plan> plan_;
  Transport* transport_ = nullptr;
  EventTable events_;
  Identities identities_;
  Exchange exchange_;
  std::unique_ptr<WeightPanels> panels_;
  std::vector<Reservation> local_;          // by region, empty where symmetric
  std::vector<SymmetricHandle> symmetric_;  // by region
  std::vector<BoundTensor> bound_;          // by buffer
  std::vector<RoutingTables> tables_;       // by entry; filled for entries that route
  std::vector<bool> done_;                  // by entry
  std::vector<uint64_t> digests_;           // by entry: of its routing
  std::vector<int32_t> counts_;
  std::pair<int64_t, int64_t> exchanged_;
  Step step_;
};

}  // namespace sluice
