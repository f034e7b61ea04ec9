#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/doctor/doctor.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

const char* stateWord(FindingState state) {
  switch (state) {
    case FindingState::kFact:
      return "";
    case FindingState::kWorks:
      return "works";
    case FindingState::kMissing:
      return "missing";
    case FindingState::kFails:
      return "FAILS";
  }
  return "";
}

std::string section(const char* title, const Findings& findings) {
  std::string text = fmt::format("\n{}\n", title);
  for (const Finding& finding : findings) {
    const bool isFact = finding.state == FindingState::kFact;
    text += isFact ? fmt::format("  {:<14}{}\n", finding.name, finding.found)
                   : fmt::format("  {:<9}{}{}{}\n", stateWord(finding.state), finding.name,
                                 finding.found.empty() ? "" : ": ", finding.found);
    if (!finding.change.empty()) text += fmt::format("           to change it: {}\n", finding.change);
  }
  return text;
}

Json asJson(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    Json each = {{"name", finding.name}, {"found", finding.found}};
    if (finding.state != FindingState::kFact) each["state"] = stateWord(finding.state);
    if (!finding.change.empty()) each["change"] = finding.change;
    list.push_back(std::move(each));
  }
  return list;
}

}  // namespace

std::string diagnosisText(const Diagnosis& diagnosis) {
  return diagnosis.version + "\n" + section("this machine", diagnosis.machine) +
         section("optional parts", diagnosis.parts) + section("tried here", diagnosis.job) +
         (diagnosis.works ? "\nthe main job works here\n" : "\nthe main job does not work here\n");
}

std::string diagnosisJson(const Diagnosis& diagnosis) {
  // names and messages may have any bytes
  return Json{{"version", diagnosis.version},
              {"works", diagnosis.works},
              {"machine", asJson(diagnosis.machine)},
              {"parts", asJson(diagnosis.parts)},
              {"tried", asJson(diagnosis.job)}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace sluice::tools
