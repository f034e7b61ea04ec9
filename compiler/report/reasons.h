// The reasons in an explanation, one line of text each. Part of explain.
//
// Reads a verified program and the graph it was compiled from; owns neither.
#pragma once

#include <string>
#include <vector>

#include "compiler/analysis/coverage.h"
#include "compiler/report/explain.h"

namespace sluice {

class Reasons {
 public:
  Reasons(const TaskProgram& program, moe::GraphOp graph, const std::vector<Decision>& decisions);

  // Space, slots, tiles, decisions.
  std::vector<std::string> ofFamily(FamilyId family) const;
  EventExplanation ofWait(FamilyId family, EventId event) const;
  EventExplanation ofSignal(FamilyId family, EventId event) const;
  std::vector<std::string> ofSharing(const std::vector<BufferId>& buffers) const;

 private:
  // Null if no node became the family.
  moe::NodeOp findNode(const Family& family) const;
  std::vector<moe::NodeOp> listNodes(const std::string& entry) const;
  std::string slotReason(FamilyId family, SpaceKind cut) const;
  std::string tileReason(const Family& family) const;
  std::string fusionReason(const Family& family) const;
  std::string chosen(DecidedSize size, std::string_view option) const;
  FamilyId findWriter(BufferId buffer, EntryId entry) const;

  const TaskProgram& program_;
  mutable moe::GraphOp graph_;  // mutable, because its accessors are not const
  const std::vector<Decision>& decisions_;
  CoverageTable coverage_;
};

}  // namespace sluice
