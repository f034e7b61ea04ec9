// Meeting: before each step of a workspace, every rank sends its plans for the step to every other rank.
//
// A step takes place at all ranks or at none: if one refuses it, all fail with the message of that rank, and
// if their steps differ, all fail with the difference. So a rank that finds an error in its own part still
// joins the meeting, and the next meeting is about the same step at all ranks. A meeting depends on no
// program: a rank can refuse before it has loaded one.
//
// Used by one thread of the rank at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"
#include "runtime/program/program.h"

namespace sluice {

// The step that a rank is about to run; all ranks compare them.
struct StepOffer {
  enum class Kind : uint32_t {
    kRun,    // `name` is an entry, of the context with that number in the workspace
    kAgree,  // `name` is an action that all ranks take before a step; `routing` is a digest of it
  };
  Kind kind = Kind::kRun;
  uint64_t step = 0;  // its number in the workspace, from 1; used in messages, and equal at all ranks
  std::string_view name;
  std::string_view program;  // the name of the entry's program, for messages
  uint32_t context = 0;
  EntryId entry;
  int64_t tokens = 0;
  int64_t rows = -1;  // of the inputs of rows of an entry that routes; -1: it has none
  std::string_view
      arguments;  // of kAgree: what the digest comes from, as "CALL: NAME=VALUE; NAME=VALUE"; for messages
  uint64_t routing = 0;    // digest() of the routing that the entry uses, if an earlier step made it
  uint64_t placement = 0;  // digest of the experts of all places; 0: experts have one place each
  uint64_t memory = 0;     // digest of the symmetric memory that the step writes to
  uint32_t saved = 0;      // number of the saved set, which may differ if the memory is the same
  int64_t common = 0;      // a number that the callers of all ranks must have alike
  bool asks = false;       // what follows may still fail at this rank, so that all ranks meet again
  std::string failure;     // not empty: the reason why the rank refuses the step
};

class Meeting {
 public:
  // Collective, but waits only if the transport's allocate() does.
  static Expected<Meeting> create(Transport& transport);

  // Posts this rank's offer and collects the offers of all ranks. Errors, the same at every rank: a rank that
  // refuses, or does something else. A timeout aborts the transport.
  Status hold(const StepOffer& offer, double timeoutSeconds);

  // From the last meeting; a peer may have sent any number.
  int64_t rankTokens(int rank) const;
  int64_t rankRows(int rank) const;
  bool anyAsks() const { return anyAsks_; }

 private:
  struct Header;

  Header readOfferHeader(int rank) const;
  Status compare(int source) const;
  std::string differingArgument(int source, const Header& header, const Header& first) const;

  Transport* transport_ = nullptr;
  AllGather boards_;
  bool anyAsks_ = false;
  std::string when_;  // of the step, for messages
};

}  // namespace sluice
