#include "tools/bench/mpirun_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
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

#include "runtime/program/codec.h"
#include "tools/launch/start_tool.h"
#include "tools/overlap/overlap_report.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

bool isProgram(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_regular_file(path, failed) && access(path.c_str(), X_OK) == 0;
}

// Empty where there is none.
std::string findProgram(const std::string& name, const std::string& path) {
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const std::string found = folder + "/" + name; !folder.empty() && isProgram(found)) return found;
  return {};
}

// A folder of this process alone, and what is in it, as long as the object lives.
class ScratchFolder {
 public:
  static Expected<ScratchFolder> create() {
    std::error_code failed;
    const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
    std::string name = ((failed ? "/tmp" : parent) / "sluice-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      return Error{fmt::format("{}: cannot make the folder: {}", name, std::strerror(errno))};
    return ScratchFolder(std::move(name));
  }
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  std::string file(std::string_view name) const { return fmt::format("{}/{}", path_, name); }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

// Between fork and exec nothing may allocate: all is there before.
Status runProgram(const std::vector<std::string>& arguments) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    // the report of the run is not this program's
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  if (child < 0) return Error{fmt::format("{}: cannot start it: {}", arguments[0], std::strerror(errno))};
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return Error{fmt::format("{}: {}", arguments[0], std::strerror(errno))};
  if (WIFSIGNALED(status))
    return Error{fmt::format("{} was killed by signal {}", arguments[0], WTERMSIG(status))};
  if (WEXITSTATUS(status) != 0)
    return Error{fmt::format("{} ended with status {}", arguments[0], WEXITSTATUS(status))};
  return {};
}

std::string_view packing(WeightsMode weights) {
  switch (weights) {
    case WeightsMode::kOrdinary:
      return "task";
    case WeightsMode::kPackedEachStep:
      return "step";
    case WeightsMode::kConstant:
      return "once";
  }
  return "task";
}

Expected<std::vector<EntryOverlap>> readFigures(const std::string& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("overlap") || !json["overlap"].is_array())
    return Error{fmt::format("{}: found no figures of an overlap", path)};
  std::vector<EntryOverlap> entries;
  for (const Json& entry : json["overlap"]) {
    Expected<EntryOverlap> overlap = overlapFromJson(entry);
    if (!overlap) return Error{fmt::format("{}: {}", path, overlap.error().message)};
    entries.push_back(std::move(*overlap));
  }
  return entries;
}

Expected<RanksSamples> measureOne(const MpiTools& tools, const LayerCase& layer,
                                  const BenchOptions& options) {
  const int threads = std::max(1, options.threads / layer.ranks);
  const Expected<Program> program = compileLayer(layer, threads, options);
  if (!program) return program.error();
  if (Status fits = checkBytes(bytesOfLayer(*program, layer)); !fits) return fits.error();
  const Expected<ScratchFolder> folder = ScratchFolder::create();
  if (!folder) return folder.error();
  if (Status status = writeProgram(program->tables(), folder->file("layer.slp")); !status)
    return status.error();
  // ranks make the inputs that makeLayerRank() does; more ranks than cores are allowed, and workers bind
  // themselves
  const std::vector<std::string> arguments = {tools.mpirun,
                                              "-n",
                                              std::to_string(layer.ranks),
                                              "--oversubscribe",
                                              "--bind-to",
                                              "none",
                                              tools.sluice,
                                              "run",
                                              folder->file("layer.slp"),
                                              "--seed",
                                              "1",
                                              "--tokens",
                                              std::to_string(layer.tokens),
                                              "--routing",
                                              layer.skew,
                                              "--entry",
                                              options.backward ? "forward,backward" : "forward",
                                              "--threads",
                                              std::to_string(threads),
                                              "--pack-weights",
                                              std::string(packing(options.weights)),
                                              "--timeout",
                                              "600",
                                              "--repeat",
                                              std::to_string(options.repeat),
                                              "--overlap",
                                              "--overlap-json",
                                              folder->file("overlap.json")};
  if (Status ran = runProgram(arguments); !ran) return ran.error();
  Expected<std::vector<EntryOverlap>> entries = readFigures(folder->file("overlap.json"));
  if (!entries) return entries.error();
  if (!options.forward && !entries->empty()) entries->erase(entries->begin());
  return RanksSamples{layer, threads, std::move(*entries)};
}

}  // namespace

Expected<MpiTools> findMpiTools(const std::string& path) {
  MpiTools tools;
  tools.mpirun = findProgram("mpirun", path);
  if (tools.mpirun.empty())
    return Error{"--transport mpi: there is no mpirun on the PATH (Debian: openmpi-bin)"};
  if (const std::string self = ownPath(); !self.empty())
    tools.sluice = findProgram("sluice-mpi", std::filesystem::path(self).parent_path().string());
  if (tools.sluice.empty()) tools.sluice = findProgram("sluice-mpi", path);
  if (tools.sluice.empty())
    return Error{
        "--transport mpi: there is no sluice-mpi beside sluice-bench or on the PATH; `bazel build "
        "//tools:sluice-mpi` makes it where an MPI library is installed (Debian: libopenmpi-dev)"};
  return tools;
}

Expected<std::vector<RanksSamples>> measureMpi(const MpiTools& tools, const std::vector<LayerCase>& layers,
                                               const BenchOptions& options) {
  std::vector<RanksSamples> result;
  for (const LayerCase& layer : layers) {
    Expected<RanksSamples> samples = measureOne(tools, layer, options);
    if (!samples) return samples.error();
    result.push_back(std::move(*samples));
  }
  return result;
}

}  // namespace sluice::tools
