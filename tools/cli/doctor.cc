// sluice doctor: what this machine has, and what of Sluice works on it.
#include "tools/doctor/doctor.h"

#include <filesystem>
#include <memory>

#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/command_line.h"
#include "tools/launch/run_command.h"

namespace sluice::tools {
namespace {

Expected<int> examine(bool json) {
  const std::string folder = std::filesystem::path(ownPath()).parent_path().string();
  Diagnosis diagnosis{versionText("sluice"), describeMachine(), findParts(folder), {}, false};
  Expected<Findings> job = tryMainJob(folder, diagnosis.parts.front().state == FindingState::kWorks);
  if (!job) return job.error();
  diagnosis.job = std::move(*job);
  diagnosis.works = worksAlone(diagnosis.job);
  if (Status done = printText(json ? diagnosisJson(diagnosis) : diagnosisText(diagnosis)); !done)
    return done.error();
  return diagnosis.works ? kExitSuccess : kExitFailure;
}

}  // namespace

Command addDoctor(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("doctor", "show what this machine has, and what of Sluice works on it");
  const auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "print JSON");
  app->footer(
      R"(Compiles a small layer, runs it forward and backward on two ranks (as threads, as processes, and by mpirun if
there is one) and checks the results, in a temporary folder. Put its output into a report of a fault.

exit status: 0 the main job works, 1 it does not, 2 wrong usage)");
  return {app, [json] { return examine(*json); }};
}

}  // namespace sluice::tools
