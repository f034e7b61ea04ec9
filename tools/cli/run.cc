// sluice run: executes entries of a program; ranks are threads of this process.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runtime/api/sluice.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_tensors.h"
#include "tools/trace/chrome_trace.h"
#include "tools/trace/summary.h"

namespace sluice::tools {
namespace {

struct Options {
  std::string program, in, out, entries, executor = "parallel", pack = "task", hugePages = "on", trace;
  int threads = 0;
  double timeout = 30;
  int repeat = 1;
  double packedMib = 0;
};

// The first error of any rank: those that follow from it say less.
class FirstError {
 public:
  void set(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) error_ = error;
    failed_ = true;
  }
  Status status() const { return failed_ ? Status{error_} : Status{}; }

 private:
  std::mutex mutex_;
  bool failed_ = false;
  Error error_;
};

struct Rank {
  int64_t tokens = 0;
  TensorMap inputs;
  TensorMap outputs;
  std::vector<std::vector<RunStats>> stats;  // by entry run, then by repetition
  PackedWeights packed;
  Trace trace;        // of the last repetition
  HugePageUse pages;  // of the process, when this rank was done
};

struct Job {
  Program program;
  std::vector<EntryId> entries;
  EntryTensors tensors;
  ContextOptions options;
  Weights weights = Weights::kOrdinary;
  int repeat = 1;
  bool trace = false;
};

TensorView viewOf(Tensor& tensor) { return {tensor.type(), tensor.shape(), tensor.data()}; }

Status bindAll(const Job& job, Rank& rank, Context& context) {
  for (BufferId id : job.tensors.inputs) {
    const std::string& name = job.program.tables().at(id).name;
    if (Status status = context.bind(name, viewOf(rank.inputs.at(name)), job.weights); !status) return status;
  }
  for (auto& [name, tensor] : rank.outputs)
    if (Status status = context.bind(name, viewOf(tensor)); !status) return status;
  return {};
}

// Outputs of extent rows belong to the context and last until the next run only.
Status keepRowOutputs(const Job& job, EntryId entry, Rank& rank, Context& context) {
  for (BufferId id : tensorsOf(job.program.tables(), {entry}).outputs) {
    const Buffer& buffer = job.program.tables().at(id);
    if (buffer.shape.empty() || buffer.shape[0].extent != Extent::kRows) continue;
    const Expected<TensorView> view = context.output(buffer.name);
    if (!view) return view.error();
    Tensor copy(view->type, view->shape);
    std::memcpy(copy.data(), view->data, static_cast<size_t>(copy.bytes()));
    rank.outputs.insert_or_assign(buffer.name, std::move(copy));
  }
  return {};
}

Status runRank(const Job& job, Transport& transport, Rank& rank) {
  Expected<std::unique_ptr<Context>> context = Context::create(job.program, transport, job.options);
  if (!context) return context.error();
  if (Status status = bindAll(job, rank, **context); !status) return status;
  rank.stats.resize(job.entries.size());
  for (int repetition = 0; repetition < job.repeat; ++repetition) {
    // Each repetition computes the same.
    copyStarts(job.program.tables(), rank.inputs, rank.outputs);
    if (job.trace && repetition + 1 == job.repeat) (*context)->startTrace();
    for (size_t i = 0; i < job.entries.size(); ++i) {
      const EntryId entry = job.entries[i];
      if (Status status = (*context)->run(job.program.tables().at(entry).name); !status) return status;
      rank.stats[i].push_back((*context)->lastRun());
      if (repetition + 1 < job.repeat) continue;
      if (Status status = keepRowOutputs(job, entry, rank, **context); !status) return status;
    }
  }
  rank.packed = (*context)->packedWeights();
  rank.trace = (*context)->takeTrace();
  rank.pages = hugePageUse();
  return {};
}

Status runRanks(const Job& job, std::vector<Rank>& ranks) {
  LocalRanks local(job.program.ranks());
  FirstError first;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      Transport& transport = local.transport(static_cast<int>(r));
      const Status status = runRank(job, transport, ranks[r]);
      if (status) return;
      first.set(status.error());
      // The others must not wait for a rank that is gone.
      transport.abort(status.error().message);
    });
  for (std::thread& thread : threads) thread.join();
  return first.status();
}

std::string report(const Job& job, const std::vector<Rank>& ranks) {
  std::string text = fmt::format("{:<12}{:>10}{:>8}{:>10}{:>11}{:>11}{:>11}{:>10}\n", "entry", "rows", "skew",
                                 "tasks", "bind ms", "best ms", "median ms", "TFLOP/s");
  for (size_t i = 0; i < job.entries.size(); ++i) {
    int64_t rows = 0, hottest = 0, tasks = 0;
    double flops = 0;
    std::vector<double> bind(static_cast<size_t>(job.repeat)), seconds(bind.size());
    for (const Rank& rank : ranks) {
      rows += rank.stats[i].back().rows;
      flops += flopsOf(job.program.tables(), job.entries[i], rank.stats[i].back().rows, rank.tokens);
      hottest = std::max(hottest, rank.stats[i].back().rows);
      tasks += rank.stats[i].back().tasks;
      // An entry takes as long as its slowest rank.
      for (size_t n = 0; n < seconds.size(); ++n) {
        bind[n] = std::max(bind[n], rank.stats[i][n].bindSeconds);
        seconds[n] = std::max(seconds[n], rank.stats[i][n].runSeconds);
      }
    }
    std::sort(bind.begin(), bind.end());
    std::sort(seconds.begin(), seconds.end());
    const double skew =
        rows > 0 ? static_cast<double>(hottest * std::ssize(ranks)) / static_cast<double>(rows) : 1;
    text += fmt::format("{:<12}{:>10}{:>8.2f}{:>10}{:>11.3f}{:>11.3f}{:>11.3f}{:>10.4f}\n",
                        job.program.tables().at(job.entries[i]).name, rows, skew, tasks, bind.front() * 1e3,
                        seconds.front() * 1e3, seconds[seconds.size() / 2] * 1e3,
                        seconds.front() > 0 ? flops / seconds.front() * 1e-12 : 0.0);
  }
  return text;
}

// What the packed weights of all ranks take; nothing where none are packed.
std::string reportPacked(const Job& job, const std::vector<Rank>& ranks) {
  if (job.weights == Weights::kOrdinary && !job.options.packEachStep) return {};
  PackedWeights all;
  for (const Rank& rank : ranks) {
    all.bytes += rank.packed.bytes;
    all.panels += rank.packed.panels;
    all.withoutRoom += rank.packed.withoutRoom;
  }
  const std::string left = all.withoutRoom > 0 ? fmt::format(", {} without room", all.withoutRoom) : "";
  return fmt::format("packed weights: {:.1f} MiB, {} panels{}\n", static_cast<double>(all.bytes) / (1 << 20),
                     all.panels, left);
}

// The rank that was done first saw the memory of all.
std::string describePages(const std::vector<Rank>& ranks) {
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
    return a.pages.residentBytes < b.pages.residentBytes;
  });
  return describe(most->pages) + "\n";
}

Expected<std::vector<Rank>> loadRanks(const Job& job, const std::vector<std::string>& paths) {
  std::vector<Rank> ranks(paths.size());
  for (size_t r = 0; r < paths.size(); ++r) {
    Expected<TensorMap> tensors = readSafetensors(paths[r]);
    if (!tensors) return tensors.error();
    const TaskProgram& program = job.program.tables();
    const Expected<int64_t> tokens = checkInputs(program, static_cast<int>(r), job.tensors.inputs, *tensors);
    if (!tokens) return Error{fmt::format("{}: {}", paths[r], tokens.error().message)};
    ranks[r].tokens = *tokens;
    ranks[r].inputs = std::move(*tensors);
    ranks[r].outputs = makeOutputs(program, static_cast<int>(r), job.tensors.outputs, *tokens);
  }
  return ranks;
}

// Writes the file but for its rename; nothing where no trace was asked for.
Expected<std::optional<PendingFile>> stageTrace(const Options& options, const TaskProgram& program,
                                                const std::vector<Trace>& traces) {
  if (options.trace.empty()) return std::optional<PendingFile>();
  Expected<PendingFile> file = PendingFile::create(options.trace);
  if (!file) return file.error();
  const std::string text = chromeTrace(program, traces);
  if (Status status = file->write(std::as_bytes(std::span(text))); !status) return status.error();
  if (Status status = file->finish(); !status) return status.error();
  return std::optional<PendingFile>(std::move(*file));
}

Expected<int> run(const Options& options) {
  if (options.hugePages == "off") refuseHugePages();
  Expected<Program> program = Program::load(options.program);
  if (!program) return program.error();
  Expected<std::vector<EntryId>> entries = findEntries(program->tables(), options.entries);
  if (!entries) return Error{fmt::format("{}: {}", options.program, entries.error().message)};
  const Expected<std::vector<std::string>> in = rankPaths(options.in, program->ranks());
  if (!in) return in.error();
  const Expected<std::vector<std::string>> out = rankPaths(options.out, program->ranks());
  if (!out) return out.error();
  std::vector<std::string> written = *out;
  if (!options.trace.empty()) written.push_back(options.trace);
  if (Status status = probeWritable(written); !status) return status.error();

  Job job{*program, std::move(*entries), {}, {}, Weights::kOrdinary, options.repeat, !options.trace.empty()};
  job.tensors = tensorsOf(job.program.tables(), job.entries);
  job.options.threads = options.threads;
  job.options.executor = options.executor == "serial" ? ExecutorKind::kSerial : ExecutorKind::kParallel;
  job.options.timeoutSeconds = options.timeout;
  job.options.packEachStep = options.pack == "step";
  if (options.packedMib > 0) job.options.packedBytes = static_cast<int64_t>(options.packedMib * (1 << 20));
  if (options.pack == "once") job.weights = Weights::kConstant;
  Expected<std::vector<Rank>> ranks = loadRanks(job, *in);
  if (!ranks) return ranks.error();
  if (Status status = runRanks(job, *ranks); !status) return status.error();

  std::vector<TensorMap> outputs;
  std::vector<Trace> traces;
  for (Rank& rank : *ranks) {
    outputs.push_back(std::move(rank.outputs));
    traces.push_back(std::move(rank.trace));
  }
  Expected<std::optional<PendingFile>> trace = stageTrace(options, job.program.tables(), traces);
  if (!trace) return trace.error();
  if (Status status = writeRanks(*out, outputs); !status) return status.error();
  std::string text = report(job, *ranks) + reportPacked(job, *ranks) + describePages(*ranks);
  if (*trace) {
    if (Status status = (*trace)->commit(); !status) return status.error();
    text += "\n" + traceSummary(job.program.tables(), traces);
  }
  if (Status status = printText(text); !status) return status.error();
  return kExitSuccess;
}

}  // namespace

Command addRun(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("run", "run entries of a program; ranks are threads of this process");
  const auto options = std::make_shared<Options>();
  app->add_option("program", options->program, "program file")->required()->type_name("layer.slp");
  app->add_option("--in", options->in, "inputs of each rank")->required()->type_name("in-{rank}.safetensors");
  app->add_option("--out", options->out, "outputs of each rank")
      ->required()
      ->type_name("out-{rank}.safetensors");
  app->add_option("--entry", options->entries, "entries to run, in this order (default: all)")
      ->type_name("A,B");
  app->add_option("--threads", options->threads, "workers of each rank (default: cores / ranks)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_option("--executor", options->executor, "parallel (default), or serial: one thread, in key order")
      ->check(CLI::IsMember({"serial", "parallel"}))
      ->type_name("KIND");
  app->add_option("--timeout", options->timeout, "longest wait for one event (default: 30)")
      ->check(CLI::Range(1e-3, 1e6))
      ->type_name("SECONDS");
  app->add_option("--repeat", options->repeat, "runs of all entries; prints best and median (default: 1)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  app->add_option(
         "--pack-weights", options->pack,
         "weights are packed for the kernels in each task (default), once a step for tasks that share "
         "them, or once: they do not change between runs")
      ->check(CLI::IsMember({"task", "step", "once"}))
      ->type_name("WHEN");
  app->add_option("--packed-limit", options->packedMib,
                  "memory for packed weights of a rank (default: as much as they take)")
      ->check(CLI::Range(1e-3, 1e9))
      ->type_name("MIB");
  app->add_option(
         "--trace", options->trace,
         "write what every worker did in the last repetition, for ui.perfetto.dev, and print where the "
         "time went")
      ->type_name("TRACE.json");
  app->footer(
      "Binds inputs and outputs by name. Prints, for each entry, rows of all ranks, their skew, tasks, time "
      "of\n"
      "the slowest rank and TFLOP/s of the matrix products. Skew is the rows of the hottest rank over the "
      "mean:\n"
      "where every rank has cores of its own, no schedule is faster than the even step times it. Writes the\n"
      "outputs of all ranks, or none.\n\n"
      "examples:\n"
      "  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors'\n"
      "  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors' \\\n"
      "      --entry forward --threads 4 --repeat 10\n"
      "  sluice run layer.slp --in 'in-{rank}.safetensors' --out 'out-{rank}.safetensors' \\\n"
      "      --repeat 3 --trace trace.json\n\n"
      "exit status: 0 done, 1 bad input or a failed run, 2 wrong usage");
  return {app, [options] { return run(*options); }};
}

}  // namespace sluice::tools
