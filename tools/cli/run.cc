// sluice run: executes entries of a program; ranks are threads of this process, processes of this machine, or
// processes that mpirun started.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "runtime/api/context.h"
#include "runtime/api/make_device.h"
#include "runtime/api/make_transport.h"
#include "runtime/base/clock.h"
#include "runtime/comm/mpi/mpi.h"
#include "tools/cli/command.h"
#include "tools/cli/run_job.h"
#include "tools/launch/launch.h"
#include "tools/launch/rank_variables.h"
#include "tools/launch/run_command.h"

namespace sluice::tools {
namespace {

constexpr const char* kMpiTool = "sluice-mpi";

// This process starts one process per rank; those also run this tool, with RANK and WORLD_SIZE set.
Expected<int> startRanks(const RunOptions& options) {
  const Expected<Job> job = makeJob(options);
  if (!job) return job.error();
  if (Status fits = checkMemory(*job); !fits) return fits.error();
  Expected<std::vector<std::string>> arguments = ownCommandLine();
  if (!arguments) return arguments.error();
  Launch launch{ownPath(), std::move(*arguments), job->program.ranks()};
  launch.stoppedSeconds = options.timeout;
  return launchRanks(launch);
}

Expected<int> runProcesses(const RunOptions& options) {
  const Variables variables = processVariables();
  const Expected<std::optional<GivenRank>> given = findGivenRank(variables);
  if (!given) return given.error();
  if (!*given && isStartedByMpi(variables))
    return Error{fmt::format(
        "--transport {}: mpirun has started this process as a rank already, expected --transport mpi",
        options.transport)};
  if (!*given) return startRanks(options);
  const Expected<std::string> name = findJobName(variables);
  if (!name) return name.error();
  const Expected<Job> job = makeJob(options);
  if (job && job->program.ranks() != (*given)->size)
    return Error{fmt::format("variable WORLD_SIZE: found {}, expected {}, the ranks that {} was compiled for",
                             (*given)->size, job->program.ranks(), options.program)};
  auto transport = makeTransport({options.transport, (*given)->size, (*given)->rank, *name, options.timeout});
  if (!transport) return transport.error();
  return runAsRank(job, options.timeout, **transport);
}

Expected<int> runMpi(const RunOptions& options) {
  if (!hasMpi()) {
    Expected<std::vector<std::string>> arguments = ownCommandLine();
    if (!arguments) return arguments.error();
    return Error{
        fmt::format("{}; `bazel build //tools:{}` makes it where an MPI library is installed "
                    "(Debian: libopenmpi-dev)",
                    startTool(kMpiTool, std::move(*arguments)).message, kMpiTool)};
  }
  const Expected<Job> job = makeJob(options);
  auto transport = makeTransport({.kind = options.transport, .timeoutSeconds = options.timeout});
  if (!transport) return transport.error();
  if (job && (*transport)->size() == 1 && job->program.ranks() > 1)
    return Error{
        fmt::format("found 1 rank, expected {}, for which {} was compiled: start it as `mpirun -n {} "
                    "sluice run ...`",
                    job->program.ranks(), options.program, job->program.ranks())};
  return runAsRank(job, options.timeout, **transport);
}

Expected<int> run(RunOptions options) {
  if (options.transport.empty()) options.transport = isStartedByMpi(processVariables()) ? "mpi" : "threads";
  for (const auto& [name, ranks] : transportKinds()) {
    if (name != options.transport) continue;
    if (ranks == RanksAre::kMpi) return runMpi(options);
    if (ranks == RanksAre::kProcesses) return runProcesses(options);
  }
  const Expected<Job> job = makeJob(options);
  return job ? runThreads(*job) : job.error();
}

void addFiles(CLI::App& app, RunOptions& options) {
  auto* out =
      app.add_option("--out", options.out, "outputs of each rank")->type_name("out-{rank}.safetensors");
  auto* in = app.add_option("--in", options.in, "inputs of each rank")
                 ->needs(out)
                 ->type_name("in-{rank}.safetensors");
  auto* seed = app.add_option("--seed", options.seed,
                              "instead of --in: every rank makes the inputs that make-inputs would write, "
                              "and without --out nothing is written")
                   ->excludes(in)
                   ->type_name("N");
  app.add_option("--tokens", options.tokens,
                 "tokens of every rank, or one number per rank: of the inputs that --seed makes (default: "
                 "max_tokens), or of inputs that show only the rows of all ranks (default: shared evenly)")
      ->check(parsesBy(parseTokens))
      ->type_name("N|ragged:N|A,B");
  app.add_option("--routing", options.routing, "routing of the inputs that --seed makes (default: uniform)")
      ->needs(seed)
      ->check(parsesBy(parseRouting))
      ->type_name("KIND");
  app.callback([in, seed] {
    if (in->count() + seed->count() == 0) throw CLI::RequiredError("--in");
  });
}

}  // namespace

Command addRun(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("run", "run entries of a program; ranks are threads or processes");
  const auto options = std::make_shared<RunOptions>();
  addProgram(*app, options->program);
  addFiles(*app, *options);
  app->add_option("--entry", options->entries, "entries to run, in this order (default: all)")
      ->type_name("A,B");
  app->add_option(
         "--transport", options->transport,
         "ranks are threads of this process, processes of this machine (shm), or processes that mpirun "
         "started (default: mpi if it did, else threads)")
      ->check(CLI::IsMember(transportKinds()))
      ->type_name("KIND");
  app->add_option("--ranks", options->ranks, "number of ranks, which must be the program's")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
  app->add_option("--device", options->device,
                  "what runs the tasks: cpu (default), or cuda:N, a GPU of compute capability 9.0 on which "
                  "all ranks are threads of this process")
      ->check([](const std::string& text) {
        const Status named = checkDeviceName(text);
        return named ? std::string() : named.error().message;
      })
      ->type_name("cpu|cuda[:N]");
  app->add_option("--threads", options->threads, "workers of each rank (default: cores / ranks)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_option("--executor", options->executor, "parallel (default), or serial: one thread, in key order")
      ->check(CLI::IsMember({"serial", "parallel"}))
      ->type_name("KIND");
  app->add_option("--timeout", options->timeout, "time limit of a wait for one event (default: 30)")
      ->check(CLI::Range(1e-3, 1e6))
      ->check([](const std::string& text) {  // NaN is in every range
        const Status sane = checkTimeLimit(std::strtod(text.c_str(), nullptr));
        return sane ? std::string() : sane.error().message;
      })
      ->type_name("SECONDS");
  app->add_option("--repeat", options->repeat, "runs of all entries; prints best and median (default: 1)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  app->add_option("--pack-weights", options->pack,
                  "weights are packed for the kernels in each task (default), or once, if they do not change "
                  "between runs")
      ->check(CLI::IsMember({"task", "once"}))
      ->type_name("WHEN");
  app->add_option("--packed-limit", options->packedMib,
                  "limit of memory for packed weights per rank (default: no limit)")
      ->check(CLI::Range(1e-3, 1e9))
      ->check(notNan)
      ->type_name("MIB");
  app->add_option(
         "--trace", options->trace,
         "write what every worker did in the last repetition, for ui.perfetto.dev, and print where the "
         "time went")
      ->type_name("TRACE.json");
  app->add_option_function<std::string>(
         "--on-hang", [options](const std::string& text) { options->onHang = *parseOnHang(text); },
         "if a step does not end, write what each rank did until then, as a trace, to FILE (default: "
         "hang-{rank}.json)")
      ->check(parsesBy(parseOnHang))
      ->type_name("trace[=FILE]");
  auto* overlap = app->add_flag("--overlap", options->overlap,
                                "afterwards measure entries with communication or computation alone, in "
                                "turn, with the same number of repetitions");
  app->add_option("--overlap-json", options->overlapJson, "write the figures of --overlap to a file")
      ->needs(overlap)
      ->type_name("FILE");
  app->footer(
      R"(Binds inputs and outputs by name. Prints, for each entry, rows of all ranks, their skew, tasks, time
of the slowest rank and TFLOP/s of the matrix products. Skew is the rows of the hottest rank over the mean:
if every rank has its own cores, no schedule is faster than the step of an even routing times
the skew. Writes the outputs of all ranks, or none.

A linear layer that is cut by columns reads the rows of all ranks. If no tensor in the file shows how
many tokens each rank has, they are shared evenly, the first ranks with one more; --tokens 0,17
sets other numbers. Ranks with the same tokens have as many as rows.

--transport shm starts one process per rank. If RANK and WORLD_SIZE are set, as by torchrun, this
process is that rank, and finds the others by SLUICE_JOB or MASTER_ADDR and MASTER_PORT.

A step in which a wait exceeds --timeout, or a rank is lost, fails at all ranks. With --on-hang=trace
each rank that is left writes a trace then, and `sluice report 'hang-{rank}.json'` shows who waits for
whom. Recording costs 20 to 60 ns per task; files of that name are removed when the run begins. The
variable SLUICE_ON_HANG does the same for all programs that embed Sluice.

examples:
  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors'
  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors' \
      --entry forward --threads 4 --repeat 10
  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors' \
      --repeat 3 --trace trace.json
  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors' --transport shm
  sluice run layer.slp --seed 1 --tokens 512 --routing zipf:1.2 --transport shm --overlap
  sluice run layer.slp --seed 1 --transport shm --on-hang=trace
  mpirun -n 2 sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors'

exit status: 0 done, 1 bad input or a failed run, 2 wrong usage)");
  return {app, [options] { return run(*options); }};
}

}  // namespace sluice::tools
