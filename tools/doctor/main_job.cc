#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/scratch_folder.h"
#include "tools/cli/files.h"
#include "tools/doctor/doctor.h"
#include "tools/ffn_graph.h"
#include "tools/launch/run_command.h"

namespace sluice::tools {
namespace {

constexpr double kJobSeconds = 60;
constexpr const char* kMpi = "2 ranks started by mpirun";

class Job {
 public:
  Job(const std::string& tools, const std::string& folder) : tools_(tools), folder_(folder) {}

  Findings run(bool withMpi) {
    const std::vector<std::string> graph = {tools_ + "/sluicec",
                                            "graph.json",
                                            "--trainable",
                                            "all",
                                            "--set",
                                            "ep=2",
                                            "--set",
                                            "experts=4",
                                            "--set",
                                            "top_k=2",
                                            "--set",
                                            "hidden=256",
                                            "--set",
                                            "intermediate=128",
                                            "--set",
                                            "max_tokens=64",
                                            "-o",
                                            "layer.slp"};
    if (!attempt("compile a layer, with its backward", {graph})) return std::move(findings_);
    if (!attempt("2 ranks as threads, forward and backward, near double precision",
                 {{tool(), "make-inputs", "layer.slp", "--out", "in-{rank}"},
                  runTo("threads"),
                  {tool(), "check", "layer.slp", "--in", "in-{rank}", "--out", "threads-{rank}"}}))
      return std::move(findings_);
    attempt("2 ranks as processes over shared memory, the same bytes",
            {with(runTo("shm"), {"--transport", "shm"}), same("shm")});
    if (withMpi) {
      std::vector<std::string> command = {"mpirun", "-n", "2"};
      if (::geteuid() == 0) command.push_back("--allow-run-as-root");
      command.push_back("--oversubscribe");
      for (const std::string& argument : runTo("mpi")) command.push_back(argument);
      attempt(std::string(kMpi) + ", the same bytes", {command, same("mpi")});
    }
    return std::move(findings_);
  }

 private:
  using Arguments = std::vector<std::string>;

  std::string tool() const { return tools_ + "/sluice"; }
  Arguments runTo(const std::string& name) const {
    return {tool(), "run", "layer.slp", "--in", "in-{rank}", "--out", name + "-{rank}", "--timeout", "10"};
  }
  static Arguments with(Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Arguments same(const std::string& name) {
    return {"sh", "-c", fmt::format("cmp threads-0 {0}-0 && cmp threads-1 {0}-1", name)};
  }

  // Whether all commands succeed.
  bool attempt(const std::string& name, const std::vector<Arguments>& commands) {
    for (const Arguments& arguments : commands) {
      const Expected<CommandResult> result = runCommand(arguments, kJobSeconds, folder_);
      std::string wrong;
      if (!result)
        wrong = result.error().message;
      else if (result->timedOut)
        wrong = fmt::format("{} did not end within {:g} s", arguments.front(), kJobSeconds);
      else if (result->status != 0)
        wrong = result->output.empty()
                    ? fmt::format("{} ended with status {}", arguments.front(), result->status)
                    : result->lastLine();
      if (wrong.empty()) continue;
      findings_.push_back({name, FindingState::kFails, wrong, ""});
      return false;
    }
    findings_.push_back({name, FindingState::kWorks, "", ""});
    return true;
  }

  const std::string tools_, folder_;
  Findings findings_;
};

}  // namespace

Expected<Findings> tryMainJob(const std::string& folder, bool withMpi) {
  const Expected<ScratchFolder> scratch = ScratchFolder::create("sluice-doctor");
  if (!scratch) return scratch.error();
  if (Status written = writeText(scratch->path() + "/graph.json", ffnGraph()); !written)
    return written.error();
  return Job(folder, scratch->path()).run(withMpi);
}

bool worksAlone(const Findings& job) {
  return std::ranges::all_of(job, [](const Finding& finding) {
    return finding.state == FindingState::kWorks || finding.name.starts_with(kMpi);
  });
}

}  // namespace sluice::tools
