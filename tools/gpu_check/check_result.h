// What a check found.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace sluice::tools {

struct CheckResult {
  std::string name;
  bool passed = false;
  std::string text;  // figures, or what is wrong
  double seconds = 0;
  std::map<std::string, double> figures = {};  // those in the text that are for machines
};

using ReportResult = std::function<void(const CheckResult& result)>;

}  // namespace sluice::tools
