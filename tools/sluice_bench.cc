// sluice-bench: started by `sluice bench`. It contains the compiler and peers; the other
// subcommands of sluice need neither.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llvm/Config/llvm-config.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "compiler/api/compile.h"
#include "compiler/target/target.h"
#include "runtime/api/make_device.h"
#include "runtime/base/machine.h"
#include "runtime/workers/cores.h"
#include "tools/bench/bench_gpu.h"
#include "tools/bench/bench_layer.h"
#include "tools/bench/measure_case.h"
#include "tools/bench/peer.h"
#include "tools/bench/report.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/command_line.h"
#include "tools/progress.h"

namespace sluice::tools {
namespace {

constexpr const char* kFooter =
    R"(Cases, rows already routed, bf16, SwiGLU; forward 6 R H I operations, backward 12 R H I with weight
gradients in fp32:
  a  H 2048 I 768, 16 experts, 4096 rows     d  as a, rows of a skewed routing, two experts without
  b  H 7168 I 2048, 4 experts, 2048 rows     e  as a, 64 rows: bound by reading the weights
  c  H 1024 I 512, 8 experts, 1024 rows      f  H 4096 I 1536, 8 experts, 8192 rows
  layer  512 tokens per rank, 8 of 64 experts each, H 2048 I 768: routing, dispatch, products, combine,
         with --ranks as threads of this process, compared with its products alone
  linear  a column-parallel and a row-parallel linear layer, 4096 columns in and 8192 out (--in, --out), 4096
         tokens (--rows) that --tp ranks share, or have all with --same-tokens: rows are gathered and sums are
         scattered while products run, always measured as with --transport
--model has the sizes of a known model: what one rank of --ep computes, or with --ranks the whole layer.

--transport measures a whole layer on ranks that are threads of a process (threads), processes that share
memory (shm) or processes that mpirun starts (mpi), for each number of ranks in --ep: the step, its
communication alone and its computation alone, in turn. Each number of ranks is a separate job, `sluice run
--overlap`; the jobs take turns. Overlap is the longer one of communication and computation over the step. All
numbers of ranks have the same work: the case gives the tokens per rank for the first number of ranks.

--device measures cases a to f, one expert of H 8192 I 4096 with 8192 rows (dense), or a layer for one GPU
(n2048, n1024, n512, n256: H 4096, this I, 64 experts, K 4, 32768 tokens) and its products alone, with tensors
in memory of the GPU. Peers are cuBLAS in a loop over experts and grouped, if it is installed: their results
are compared with Sluice's before they are measured.

Within each repetition everything runs in turn: Sluice, peers, Sluice on one thread, and probes of the
register peak, of reading and of non-temporal writing. The bound is max(operations / peak, bytes read / read
bandwidth + bytes written / write bandwidth), each matrix counted once.

examples:
  sluice bench --case a --threads 2
  sluice bench --case all --threads 2 --peer onednn --json bench.json
  sluice bench --case all --threads 2 --weights constant --peer openblas,onednn-f32
  sluice bench --case all --threads 2 --plot bench.svg
  sluice bench --case layer --ranks 2 --threads 2
  sluice bench --device cuda --case all --json gpu.json
  sluice bench --transport threads --ep 2,16
  sluice bench --transport mpi --ep 2,4
  sluice bench --case linear --transport shm --tp 2,4
  sluice bench --case linear --tp 4 --same-tokens --pass forward
  sluice bench --model deepseek-v3 --tokens 4096 --ep 64 --skew zipf:1.2 --pass forward

exit status: 0 done, 1 bad input or failure, 2 wrong usage)";

struct Arguments {
  BenchOptions bench;
  std::string name, pass = "both", clock = "wall", isa, json, plot, model, skew = "uniform",
                    weights = "ordinary", transport, device = "cpu", encode;
  int64_t tokens = 4096;
  std::vector<int> ep, tp;
  LinearSize linear;
  int ranks = 0;
  std::optional<int> threads;
  bool hasTarget = false, sameTokens = false, noScaling = false, markdown = false;
};

// The error for CLI11, or an empty text. "tiny" is a further case, for tests.
std::string checkCase(const std::string& name) {
  if (name == "layer" || name == "linear" || name == "all" || gpuCase(name)) return {};
  return fmt::format("found '{}', expected a, b, c, d, e, f, all, layer or linear", name);
}

std::string checkDeviceOption(const std::string& name) {
  const Status known = checkDeviceName(name);
  return known ? "" : known.error().message;
}

void declareLinear(CLI::App& app, Arguments& a) {
  for (auto [option, size, what] :
       {std::tuple("--rows", &a.linear.rows, "tokens of all ranks (default: 4096)"),
        std::tuple("--in", &a.linear.in, "columns of the input (default: 4096)"),
        std::tuple("--out", &a.linear.out, "columns of the output (default: 8192)")})
    app.add_option(option, *size, fmt::format("with --case linear: {}", what))
        ->check(CLI::Range(1, 1 << 20))
        ->type_name("N");
  app.add_flag("--same-tokens", a.sameTokens,
               "with --case linear: all ranks have all tokens, and sums of a row-parallel layer go to all");
}

void declare(CLI::App& app, Arguments& a) {
  auto* name =
      app.add_option("--case", a.name, "a, b, c, d, e, f, all of these, layer or linear (default: a)");
  name->check(&checkCase)->type_name("CASE");
  auto* model = app.add_option("--model", a.model, fmt::format("{}", fmt::join(modelNames(), ", ")));
  model->check(CLI::IsMember(modelNames()))->type_name("NAME")->excludes(name);
  app.add_option("--tokens", a.tokens, "tokens per rank, with --model (default: 4096)")
      ->check(CLI::Range(1, 1 << 20))
      ->needs(model)
      ->type_name("T");
  auto* ep = app.add_option("--ep", a.ep,
                            "number of ranks that share the experts: --model measures one of them, "
                            "--transport all of them, for each number in turn (default: 2,4)");
  ep->check(CLI::Range(1, 4096))->delimiter(',')->type_name("N,M");
  auto* transport = app.add_option("--transport", a.transport,
                                   "how ranks of a whole layer reach each other: threads, shm or mpi");
  transport->check(CLI::IsMember({"threads", "shm", "mpi"}))->type_name("KIND");
  app.add_option("--device", a.device, "cpu (default), or cuda or cuda:N: on a GPU")
      ->check(&checkDeviceOption)
      ->type_name("DEVICE");
  app.add_option("--skew", a.skew, "uniform (default) or zipf:S, with --model")
      ->needs(model)
      ->type_name("SKEW");
  auto* ranks = app.add_option("--ranks", a.ranks,
                               "measure a whole layer on this number of ranks, as threads of this process");
  ranks->check(CLI::Range(1, 64))->excludes(ep)->excludes(transport)->type_name("N");
  app.add_option("--tp", a.tp,
                 "with --ranks: each expert is shared by this number of ranks, a divisor (default: 1); with "
                 "--case linear: numbers of ranks that share the layers, in turn (default: 2,4)")
      ->check(CLI::Range(1, 64))
      ->delimiter(',')
      ->type_name("N,M");
  declareLinear(app, a);
  app.add_option("--pass", a.pass, "forward, backward or both (default)")
      ->check(CLI::IsMember({"forward", "backward", "both"}))
      ->type_name("PASS");
  app.add_option("--threads", a.threads,
                 "total threads of all ranks (default: 1; with --transport: all of this machine)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app.add_option("--repeat", a.bench.repeat, "measured repetitions (default: 11)")
      ->check(CLI::Range(1, 100000))
      ->type_name("N");
  app.add_option("--peer", a.bench.peers,
                 "compare with other libraries, each in its strongest mode: onednn (bf16), onednn-f32, "
                 "openblas (both fp32)")
      ->check(CLI::IsMember(peerNames()))
      ->delimiter(',')
      ->type_name("NAME,NAME");
  app.add_option("--clock", a.clock,
                 "wall (default), or cpu: processor time / threads, for a machine that does other work")
      ->check(CLI::IsMember({"wall", "cpu"}))
      ->type_name("CLOCK");
  app.add_option(
         "--encode", a.encode,
         "with cases a to f and --model: encodings, as for sluicec, for example mxfp8 or, one pass, "
         "int4:g64,rows=int8; codes of weights have a backward that gives dx only; the peak is that of the "
         "unit that multiplies")
      ->type_name("ENCODINGS");
  app.add_option("--isa", a.isa, "kernels: portable, avx2, avxvnni, avx512 or amx (default: the best)")
      ->type_name("ISA");
  app.add_option("--weights", a.weights,
                 "ordinary (default): may change in each step; constant: packed before anything is measured")
      ->check(CLI::IsMember({"ordinary", "constant"}))
      ->type_name("WEIGHTS");
  app.add_option("--target", a.bench.target,
                 "device model from which sizes are chosen (default: cpu; with --device cuda: h200)")
      ->type_name("NAME");
  app.add_flag("--no-scaling", a.noScaling, "skip the runs on one thread");
  app.add_flag("--markdown", a.markdown, "print rows of a table");
  app.add_option("--json", a.json, "write every repetition to a file")->type_name("FILE");
  app.add_option("--plot", a.plot,
                 "draw the share of the peak of each case and pass, and of peers, without --transport")
      ->type_name("FILE.svg");
  app.footer(kFooter);
}

// The error if options contradict each other, or an empty text.
std::string checkLinear(const Arguments& a, const CLI::App& app) {
  if (a.name != "linear") {
    for (const char* option : {"--rows", "--in", "--out", "--same-tokens"})
      if (app.get_option(option)->count() > 0) return fmt::format("{}: for --case linear only", option);
    if (!a.tp.empty() && a.ranks == 0) return "--tp requires --ranks or --case linear";
    return a.tp.size() > 1 ? "--tp: several numbers with --case linear only" : "";
  }
  return a.ep.empty() ? "" : "--ep: --case linear has no experts; expected --tp";
}

std::string checkTransport(const Arguments& a) {
  if (a.transport.empty()) {
    if (!a.ep.empty() && a.model.empty()) return "--ep: for --model or --transport only";
    return a.ep.size() > 1 ? "--ep: several numbers with --transport only" : "";
  }
  if (!a.plot.empty())
    return "--plot: draws shares of the peak, which ranks of --transport and --case linear have none of";
  if (!a.name.empty() && a.name != "layer" && a.name != "linear" && a.name != "tiny")
    return fmt::format("--transport: found --case {}, expected --case layer, linear or --model", a.name);
  return a.bench.peers.empty() ? "" : "--transport: a whole layer has no peer to compare with";
}

std::string checkEncodings(Arguments& a) {
  const Expected<Encodings> encodings = parseEncodings(a.encode);
  if (!encodings) return "--" + encodings.error().message;
  a.bench.encodings = *encodings;
  const bool hasCodes = encodings->weights->hasCodes();
  if (!encodings->single.empty())
    return fmt::format("--encode {}: cases have one encoding for all weights, expected no weights.{}",
                       a.encode, encodings->single.begin()->first);
  if (encodings->grads->hasCodes() && a.pass != "backward")
    return fmt::format("--encode {}: rows of gradients are for --pass backward, found --pass {}", a.encode,
                       a.pass);
  if (*encodings == Encodings{}) return {};
  if (!a.transport.empty() || a.ranks > 0 || a.name == "layer" || a.name == "linear")
    return fmt::format("--encode {}: for cases a to f and --model without ranks only", a.encode);
  if (!a.bench.peers.empty())
    return fmt::format("--encode {}: peers multiply weights of bf16 or fp32", a.encode);
  if (a.pass == "both" && hasCodes)
    return fmt::format(
        "--encode {}: its passes may multiply by two units, expected --pass forward or backward", a.encode);
  return {};
}

std::string checkDevice(const Arguments& a, const CLI::App& app) {
  if (a.device == "cpu")
    return gpuCase(a.name) && !rowsCase(a.name)
               ? fmt::format("--case {}: a layer for one GPU, with --device cuda only", a.name)
               : "";
  if (a.name == "layer" || a.name == "linear")
    return fmt::format("--device: found --case {}, expected all or one of {}", a.name,
                       fmt::join(gpuCaseNames(), ", "));
  for (const char* option :
       {"--model", "--ep", "--tp", "--transport", "--ranks", "--threads", "--peer", "--clock", "--encode",
        "--isa", "--weights", "--no-scaling", "--markdown", "--plot"})
    if (app.get_option(option)->count() > 0) return fmt::format("{}: not with --device", option);
  return "";
}

std::string checkUsage(Arguments& a, const CLI::App& app) {
  if (const std::string wrong = checkDevice(a, app); !wrong.empty()) return wrong;
  if (const std::string wrong = checkEncodings(a); !wrong.empty()) return wrong;
  if (a.ranks > 0 && a.model.empty() && a.name != "layer") return "--ranks: for --model or --case layer only";
  if (const std::string wrong = checkLinear(a, app); !wrong.empty()) return wrong;
  if (a.ranks > 0 && !a.tp.empty() && a.ranks % a.tp.front() != 0)
    return fmt::format("--tp: found {}, expected a divisor of {} ranks", a.tp.front(), a.ranks);
  if (a.name == "linear" && a.transport.empty()) a.transport = "threads";
  return checkTransport(a);
}

// The requested measurements, in order.
struct Plan {
  std::vector<RowsCase> rows;
  std::vector<LayerCase> layers;
};

Expected<Plan> planOf(const Arguments& a) {
  Plan plan;
  if (!a.model.empty() && a.ranks > 0) {
    Expected<LayerCase> layer = modelLayer(a.model, a.tokens, a.ranks, a.skew);
    if (!layer) return layer.error();
    plan.layers.push_back(std::move(*layer));
  } else if (!a.model.empty()) {
    Expected<RowsCase> rows = modelRows(a.model, a.tokens, a.ep.empty() ? 1 : a.ep.front(), a.skew);
    if (!rows) return rows.error();
    plan.rows.push_back(std::move(*rows));
  } else if (a.name == "layer") {
    plan.layers.push_back(layerCase(std::max(1, a.ranks)));
  } else if (a.name == "all") {
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) plan.rows.push_back(*rowsCase(name));
  } else {
    plan.rows.push_back(*rowsCase(a.name.empty() ? "a" : a.name));
  }
  for (LayerCase& layer : plan.layers) {
    layer.tp = a.tp.empty() ? 1 : a.tp.front();
    if (layer.tp > 1) layer.name += fmt::format(", each expert on {}", layer.tp);
  }
  return plan;
}

// Prints the figures as soon as a case is done.
Status show(const CaseSamples& c, const Arguments& a, const Machine& machine, bool first) {
  const std::string header = a.markdown ? (first ? markdownHeader(a.bench) : "") : (first ? "" : "\n");
  return printText(header + (a.markdown ? formatMarkdown(c, a.bench) : formatText(c, a.bench, machine)));
}

Status measureAll(const Arguments& a, const Plan& plan, ops::Isa isa, const Machine& machine) {
  std::vector<CaseSamples> all;
  Progress progress(Redraw::kAtSteps);
  const auto optionsOf = [&](const std::string& name) {
    BenchOptions options = a.bench;
    options.between = [&, name](int step, int steps) {
      if (progress.at(std::ssize(all) + 1, std::ssize(plan.rows) + std::ssize(plan.layers),
                      fmt::format("{}: repetition {} of {}", name, step, steps)))
        letTerminalRest();
    };
    return options;
  };
  const auto keep = [&](Expected<CaseSamples> result) -> Status {
    if (!result) return result.error();
    all.push_back(std::move(*result));
    progress.hide();
    return show(all.back(), a, machine, all.size() == 1);
  };
  for (const RowsCase& c : plan.rows)
    if (Status done = keep(measureRows(c, optionsOf(c.name), isa)); !done) return done;
  for (const LayerCase& c : plan.layers)
    if (Status done = keep(measureLayer(c, optionsOf(c.name), isa)); !done) return done;
  if (const std::string skew = skewText(all, a.bench.clock); !skew.empty())
    if (Status done = printText("\n" + skew); !done) return done;
  if (!a.plot.empty())
    if (Status done = writeText(a.plot, drawPlot(all, a.bench, machine)); !done) return done;
  return a.json.empty() ? Status{} : writeText(a.json, formatJson(all, a.bench, machine));
}

// The linear layers: all numbers of ranks of one layer, then of the other.
Expected<std::vector<LayerCase>> makeLinearLayerCases(const Arguments& a) {
  std::vector<LayerCase> layers;
  for (int ranks : a.tp.empty() ? std::vector<int>{2, 4} : a.tp) {
    const Expected<std::vector<LayerCase>> cases = linearCases(a.linear, ranks, a.sameTokens);
    if (!cases) return cases.error();
    layers.insert(layers.end(), cases->begin(), cases->end());
  }
  std::stable_sort(layers.begin(), layers.end(),
                   [](const LayerCase& one, const LayerCase& other) { return one.kind < other.kind; });
  return layers;
}

// The layers of --transport: one per number of ranks, with the same work.
Expected<std::vector<LayerCase>> makeLayerCases(const Arguments& a) {
  if (a.name == "linear") return makeLinearLayerCases(a);
  const std::vector<int> ep = a.ep.empty() ? std::vector<int>{2, 4} : a.ep;
  LayerCase first = a.name == "tiny" ? tinyLayer(ep.front()) : layerCase(ep.front());
  if (!a.model.empty()) {
    Expected<LayerCase> layer = modelLayer(a.model, a.tokens, ep.front(), a.skew);
    if (!layer) return layer.error();
    first = std::move(*layer);
  }
  std::vector<LayerCase> layers;
  for (int ranks : ep) {
    Expected<LayerCase> layer = sharedAmong(first, ranks);
    if (!layer) return layer.error();
    layers.push_back(std::move(*layer));
  }
  return layers;
}

// mpirun may connect its ranks by any network, so that link is not measured.
Expected<RanksReport> measureOn(const std::string& transport, const std::vector<LayerCase>& layers,
                                const BenchOptions& options) {
  const char* path = std::getenv("PATH");
  const Expected<RanksStarter> starter = findStarter(transport, path ? path : "");
  if (!starter) return starter.error();
  Expected<std::vector<RanksSamples>> samples = measureRanks(*starter, layers, options);
  if (!samples) return samples.error();
  RanksReport report{transport, std::move(*samples), {}};
  if (transport == "mpi") return report;
  const auto link = transport == "shm" ? probeProcesses() : probeThreads();
  if (!link) return link.error();
  report.link = *link;
  return report;
}

Status measureTransport(const Arguments& a, const Machine& machine) {
  const Expected<std::vector<LayerCase>> layers = makeLayerCases(a);
  if (!layers) return layers.error();
  BenchOptions options = a.bench;
  options.threads = a.threads.value_or(usableCores().count);
  Progress progress(Redraw::kAtSteps);
  options.between = [&](int step, int steps) {
    if (progress.at(step, steps, "jobs of ranks")) letTerminalRest();
  };
  const Expected<RanksReport> report = measureOn(a.transport, *layers, options);
  if (!report) return report.error();
  progress.hide();
  const std::string text =
      a.markdown ? formatMarkdown(*report, options) : formatText(*report, options, machine);
  if (Status printed = printText(text); !printed) return printed;
  return a.json.empty() ? Status{} : writeText(a.json, formatJson(*report, options, machine));
}

Status measureGpu(const Arguments& a) {
  const Expected<BenchGpu> gpu = findBenchGpu(a.device);
  if (!gpu) return Error{fmt::format("--device: {}", gpu.error().message)};
  if (!a.json.empty())
    if (Status writable = probeWritable({a.json}); !writable) return writable;
  GpuBench bench{{}, {a.bench.repeat, a.bench.forward, a.bench.backward}, a.json};
  const std::string first = a.name.empty() ? "a" : a.name;
  for (const std::string& name : first == "all" ? gpuCaseNames() : std::vector{first})
    bench.cases.push_back(*gpuCase(name));
  BenchOptions options = a.bench;
  if (!a.hasTarget) options.target = "h200";
  return benchOnGpu(*gpu, bench, [&](const GpuCase& c) { return compileForGpu(c, options); });
}

// The versions of all peers. Error: a library is missing.
Expected<std::string> peerVersions(const std::vector<std::string>& peers) {
  std::vector<std::string> versions;
  for (const std::string& name : peers) {
    Expected<std::string> version = peerVersion(name);
    if (!version) return version.error();
    versions.push_back(std::move(*version));
  }
  return fmt::format("{}", fmt::join(versions, ", "));
}

Status bench(Arguments& a) {
  a.bench.threads = a.threads.value_or(1);
  a.bench.forward = a.pass != "backward";
  a.bench.backward = a.pass != "forward";
  if (a.device != "cpu") return measureGpu(a);
  a.bench.clock = a.clock == "cpu" ? ClockKind::kCpu : ClockKind::kWall;
  a.bench.scaling = !a.noScaling;
  if (a.weights == "constant") a.bench.weights = Weights::kConstant;
  // contexts choose their kernels from this variable
  if (!a.isa.empty()) setenv("SLUICE_ISA", a.isa.c_str(), 1);
  const Expected<const ops::KernelSet*> kernels = ops::selectKernels();
  if (!kernels) return kernels.error();
  const Expected<Plan> plan = a.transport.empty() ? planOf(a) : Plan{};
  if (!plan) return plan.error();
  std::vector<std::string> outputs;
  for (const std::string& path : {a.json, a.plot})
    if (!path.empty()) outputs.push_back(path);
  if (Status status = probeWritable(outputs); !status) return status;
  const Expected<std::string> peers = peerVersions(a.bench.peers);
  if (!peers) return peers.error();
  const Machine machine{processorName(), std::string(ops::isaName((*kernels)->isa)), *peers};
  if (!a.transport.empty()) return measureTransport(a, machine);
  return measureAll(a, *plan, (*kernels)->isa, machine);
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  using namespace sluice::tools;
  const auto declareAll = [&](CLI::App& app) -> std::function<sluice::Expected<int>()> {
    const auto arguments = std::make_shared<Arguments>();
    declare(app, *arguments);
    app.set_version_flag("--version", versionText("sluice-bench", "LLVM " LLVM_VERSION_STRING), kVersionHelp);
    app.callback([arguments, &app] {
      arguments->hasTarget = app.get_option("--target")->count() > 0;
      if (const std::string wrong = checkUsage(*arguments, app); !wrong.empty())
        throw CLI::ValidationError(wrong);
    });
    arguments->bench.targetFolders = sluice::targetFolders(argv[0]);
    return [arguments] { return succeededIf(bench(*arguments)); };
  };
  return runMain("sluice bench: measures how fast this machine computes layers, compared with its limits",
                 "sluice bench", argc, argv, declareAll);
}
