// What a check found.
#pragma once

#include <functional>
#include <string>

namespace sluice::tools {

struct CheckResult {
  std::string name;
  bool passed = false;
  std::string text;  // figures, or what is wrong
  double seconds = 0;
};

using ReportResult = std::function<void(const CheckResult& result)>;

}  // namespace sluice::tools
