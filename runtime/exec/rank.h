// RankState: one rank's side of a program: its executor, events, counts of all ranks, saved sets, and bind,
// which turns a step's routing into a Step.
//
// Resource type. One thread at a time makes sets; one thread at a time, possibly another one, binds and
// finishes steps. In steady state (token counts and routing sizes seen before) a step allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/exec/device.h"
#include "runtime/exec/exchange.h"
#include "runtime/exec/identity.h"
#include "runtime/exec/saved_state.h"
#include "runtime/exec/step.h"
#include "runtime/exec/work_memory.h"
#include "runtime/routing/placement.h"

namespace sluice {

// The arguments of a requested step. The caller must keep the pointed-to objects until the step is finished.
struct StepRequest {
  uint64_t number = 0;   // of the step in its workspace, from 1
  uint32_t context = 0;  // the number of its context in the workspace
  EntryId entry;
  SavedState* saved = nullptr;
  const WorkMemory* memory = nullptr;
  Meeting* meeting = nullptr;                       // of the workspace
  const std::vector<BoundTensor>* bound = nullptr;  // by buffer
  int64_t common = 0;                               // StepOffer::common
  Team* callers = nullptr;                          // Executor::prepare()
};

class RankState {
 public:
  // Collective: all ranks allocate symmetric memory in the same order. Does not wait if the device's
  // allocate() does not. Errors abort the transport, since the other ranks cannot continue. `identities` must
  // have been posted. The device must outlive this object. `saved`: the sets of another object for the same
  // program and transport, to share; null: new ones.
  static Expected<std::unique_ptr<RankState>> create(std::shared_ptr<const Plan> plan, Transport& transport,
                                                     Device& device, std::unique_ptr<Executor> executor,
                                                     Identities identities,
                                                     std::shared_ptr<SavedStates> saved = nullptr);

  // The set with this number; collective if it does not exist yet. Errors abort the transport.
  Expected<SavedState*> savedState(uint32_t number);
  const std::shared_ptr<SavedStates>& savedStates() const { return saved_; }

  // Call it if memory could not be allocated: returns the reason and aborts the transport.
  Error explain(const Error& error) const { return identities_.explain(error); }

  // Applies to future steps.
  void setWork(WorkKind work) { step_.work = work; }

  // Everything between run() and the first task. Errors: tensors that are not bound or have different T or
  // another R than the routing gives, ids out of range or repeated, saved tensors that do not exist; a
  // refusal by a peer; no memory for the rows of an output. They make the step fail at all ranks and leave
  // them usable, except that memory whose provider had promised not to fail aborts the transport.
  Expected<const Step*> bindStep(const StepRequest& request, double timeoutSeconds);

  // Call it after the last task: what the entry saved is then available to later entries. Returns true if the
  // step touched more memory than all earlier ones.
  bool finishStep(const StepRequest& request, TouchedMemory& touched);

  // When the last bind joined the meeting and when all ranks had, as monotonicNanoseconds().
  std::pair<int64_t, int64_t> lastExchange() const { return exchanged_; }

  const Step& step() const { return step_; }
  const Plan& plan() const { return *plan_; }
  const RegionSlots& regions() const { return regions_; }
  Executor& executor() const { return *executor_; }

 private:
  RankState() = default;
  // These are the sizes of the tensors that are bound for a step.
  struct Sizes {
    int64_t tokens = 0;
    int64_t rows = -1;  // of an entry that routes; -1: no input has rows
  };

  Status bind(const StepRequest& request, double timeoutSeconds);
  Status checkBound(const StepRequest& request, Sizes& sizes) const;
  Status checkSaved(const StepRequest& request, const Sizes& sizes) const;
  Status route(const StepRequest& request, int64_t tokens);
  StepOffer makeOffer(const StepRequest& request, const Sizes& sizes, const Status& own) const;
  Status meet(const StepRequest& request, const StepOffer& offer, double timeoutSeconds);
  Status checkTotals() const;
  Status checkRows(const StepRequest& request) const;
  void buildAllTables(const StepRequest& request);
  Status placeRows(const StepRequest& request);
  BufferAddress regionAddress(const StepRequest& request, RegionId region) const;
  uint64_t digestOfMemory(const StepRequest& request) const;
  void fillAddresses(const StepRequest& request);

  std::shared_ptr<const Plan> plan_;
  Transport* transport_ = nullptr;
  Device* device_ = nullptr;
  std::unique_ptr<Executor> executor_;
  EventTable events_;
  Identities identities_;
  Exchange exchange_;
  RegionSlots regions_;
  std::vector<std::vector<RegionId>> regionsOf_;  // by entry: the regions that its tasks read or write
  std::shared_ptr<SavedStates> saved_;
  std::vector<int32_t> counts_;
  uint64_t idsDigest_ = 0;                       // if the ranks of a group must have the same
  std::vector<std::byte> idsCopy_, placesCopy_;  // of expert ids and places, if the host cannot access them
  Placement placement_;
  uint64_t placementDigest_ = 0;  // of the step; all ranks must have the same
  std::pair<int64_t, int64_t> exchanged_;
  std::vector<BufferAddress> buffers_;  // of the current step
  Step step_;
};

}  // namespace sluice
