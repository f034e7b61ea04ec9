// sluice doctor: what this machine has, which parts of Sluice work on it, and the report of both. Value types
// and free functions. Functions that start commands need a process with one thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

// One line of what sluice doctor finds.
enum class FindingState { kFact, kWorks, kMissing, kFails };

struct Finding {
  std::string name;
  FindingState state = FindingState::kFact;
  std::string found;
  std::string change;  // the command that would change it; empty if there is none, or nothing to change
};

using Findings = std::vector<Finding>;

// Facts about this machine that matter to Sluice.
Findings describeMachine();

// Optional parts of Sluice, and the libraries that they need. `folder`: the folder of the tools.
Findings findParts(const std::string& folder);

// Tries the main job: a layer is compiled, runs forward and backward on two ranks and is checked against
// double precision. `folder`: the folder of the tools; `withMpi`: whether ranks of mpirun are tried, too.
// Each step has a minute at most. After one that fails, the steps that need it are left out. Error: no folder
// for files can be made.
Expected<Findings> tryMainJob(const std::string& folder, bool withMpi);

// Whether all that the main job needs works: all but mpirun.
bool worksAlone(const Findings& job);

// Findings, as text for people and bug reports, and as JSON.
struct Diagnosis {
  std::string version;
  Findings machine, parts, job;
  bool works = false;  // the main job
};

std::string diagnosisText(const Diagnosis& diagnosis);
std::string diagnosisJson(const Diagnosis& diagnosis);

}  // namespace sluice::tools
