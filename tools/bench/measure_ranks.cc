#include "tools/bench/measure_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "runtime/base/child_process.h"
#include "runtime/base/scratch_folder.h"
#include "runtime/program/codec.h"
#include "tools/launch/run_command.h"
#include "tools/overlap/overlap_report.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxTurns = 3;  // of the jobs of each layer

bool isProgram(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed) && access(path.c_str(), X_OK) == 0;
}

// Empty if there is none.
std::string findProgram(const std::string& name, const std::string& path) {
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string found = folder + "/" + name; !folder.empty() && isProgram(found)) return found;
  return {};
}

// Runs the command to its end. Drops its standard output, the report of the run.
Status runProgram(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const auto become = [&] {
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    return execv(argv[0], argv.data()), kNotStarted;
  };
  const Expected<pid_t> child = startChild(become, SIGTERM);
  if (!child) return Error{fmt::format("{}: {}", arguments[0], child.error().message)};
  const int status = awaitChild(*child);
  if (WIFSIGNALED(status))
    return Error{fmt::format("{} was killed by signal {}", arguments[0], WTERMSIG(status))};
  if (WEXITSTATUS(status) != 0)
    return Error{fmt::format("{} ended with status {}", arguments[0], WEXITSTATUS(status))};
  return {};
}

Status addFigures(const std::string& path, std::vector<EntryOverlap>& entries) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("overlap") || json["overlap"].size() != entries.size())
    return Error{fmt::format("{}: found no figures of an overlap of {} entries", path, entries.size())};
  for (size_t i = 0; i < entries.size(); ++i) {
    const Expected<EntryOverlap> overlap = overlapFromJson(json["overlap"][i]);
    if (!overlap) return Error{fmt::format("{}: {}", path, overlap.error().message)};
    entries[i].samples.insert(entries[i].samples.end(), overlap->samples.begin(), overlap->samples.end());
  }
  return {};
}

// The command line of a job without its repetitions. Ranks make their inputs. More ranks than cores are
// allowed, and workers bind themselves.
std::vector<std::string> makeCommand(const RanksStarter& starter, const RanksSamples& samples,
                                     const BenchOptions& options, const std::string& program) {
  const LayerCase& layer = samples.layer;
  std::vector<std::string> command;
  if (!starter.mpirun.empty())
    command = {starter.mpirun, "-n", std::to_string(layer.ranks), "--oversubscribe", "--bind-to", "none"};
  const bool once = options.weights == Weights::kConstant;
  const std::pair<const char*, std::string> settings[] = {
      {"--transport", starter.transport},
      {"--seed", "1"},
      {"--tokens", std::to_string(layer.tokens)},
      {"--routing", layer.skew},
      {"--entry", options.backward ? "forward,backward" : "forward"},
      {"--threads", std::to_string(samples.threads)},
      {"--pack-weights", once ? "once" : "task"},
      {"--timeout", "600"}};
  command.insert(command.end(), {starter.sluice, "run", program, "--overlap"});
  for (const auto& [name, value] : settings) command.insert(command.end(), {name, value});
  return command;
}

}  // namespace

Expected<LayerCase> sharedAmong(const LayerCase& first, int ranks) {
  const int64_t tokens = first.tokens * first.ranks;
  if (tokens % ranks != 0) return Error{fmt::format("{} ranks cannot share {} tokens evenly", ranks, tokens)};
  if (first.experts < ranks)
    return Error{fmt::format("{} ranks cannot share {} experts", ranks, first.experts)};
  LayerCase layer = first;
  layer.tokens = tokens / ranks;
  layer.ranks = ranks;
  return layer;
}

Expected<RanksStarter> findStarter(const std::string& transport, const std::string& path) {
  const bool mpi = transport == "mpi";
  RanksStarter starter{transport, {}, mpi ? findProgram("mpirun", path) : ""};
  if (mpi && starter.mpirun.empty())
    return Error{"--transport mpi: there is no mpirun on the PATH (Debian: openmpi-bin)"};
  const char* const tool = mpi ? "sluice-mpi" : "sluice";
  if (const std::string self = ownPath(); !self.empty())
    starter.sluice = findProgram(tool, std::filesystem::path(self).parent_path().string());
  if (starter.sluice.empty()) starter.sluice = findProgram(tool, path);
  if (!starter.sluice.empty()) return starter;
  return Error{fmt::format(
      "--transport {}: there is no {} next to sluice-bench or on the PATH; `bazel build "
      "//tools:{}` makes it{}",
      transport, tool, tool, mpi ? " where an MPI library is installed (Debian: libopenmpi-dev)" : "")};
}

Expected<std::vector<RanksSamples>> measureRanks(const RanksStarter& starter,
                                                 const std::vector<LayerCase>& layers,
                                                 const BenchOptions& options) {
  const Expected<ScratchFolder> folder = ScratchFolder::create("sluice-bench");
  if (!folder) return folder.error();
  const auto fileOf = [&](size_t layer) { return fmt::format("{}/layer{}.slp", folder->path(), layer); };
  std::vector<RanksSamples> result;
  for (const LayerCase& layer : layers) {
    const int threads = std::max(1, options.threads / layer.ranks);
    const Expected<Program> program = compileLayer(layer, threads, options);
    if (!program) return program.error();
    if (Status fits = checkBytes(bytesOfLayer(*program, layer)); !fits) return fits.error();
    if (Status status = writeProgram(program->tables(), fileOf(result.size())); !status)
      return status.error();
    result.push_back({layer, threads, {{"forward", {}}}});
    if (options.backward) result.back().entries.push_back({"backward", {}});
  }
  const std::string figures = folder->path() + "/overlap.json";
  const int turns = std::min(options.repeat, kMaxTurns);
  for (int turn = 0; turn < turns; ++turn) {
    const int repeat = options.repeat / turns + (turn < options.repeat % turns ? 1 : 0);
    for (size_t i = 0; i < result.size(); ++i) {
      if (options.between)
        options.between(turn * static_cast<int>(result.size()) + static_cast<int>(i) + 1,
                        turns * static_cast<int>(result.size()));
      std::vector<std::string> command = makeCommand(starter, result[i], options, fileOf(i));
      command.insert(command.end(), {"--repeat", std::to_string(repeat), "--overlap-json", figures});
      if (Status ran = runProgram(command); !ran) return ran.error();
      if (Status read = addFigures(figures, result[i].entries); !read) return read.error();
    }
  }
  if (!options.forward)
    for (RanksSamples& samples : result) samples.entries.erase(samples.entries.begin());
  return result;
}

}  // namespace sluice::tools
