// Findings as text for people and bug reports, and as JSON. Free functions of values.
#pragma once

#include <string>

#include "tools/doctor/finding.h"

namespace sluice::tools {

struct Diagnosis {
  std::string version;
  Findings machine, parts, job;
  bool works = false;  // the main job
};

std::string diagnosisText(const Diagnosis& diagnosis);
std::string diagnosisJson(const Diagnosis& diagnosis);

}  // namespace sluice::tools
