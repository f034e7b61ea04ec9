// What sluice doctor finds: one line each. Value types.
#pragma once

#include <string>
#include <vector>

namespace sluice::tools {

enum class FindingState { kFact, kWorks, kMissing, kFails };

struct Finding {
  std::string name;
  FindingState state = FindingState::kFact;
  std::string found;
  std::string change;  // the command that would change it; empty if there is none, or nothing to change
};

using Findings = std::vector<Finding>;

}  // namespace sluice::tools
