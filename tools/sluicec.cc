// sluicec: compiles a graph file to a task program.
#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <optional>

#include "compiler/analysis/in_place.h"
#include "compiler/api/compile.h"
#include "compiler/api/core_options.h"
#include "compiler/api/pipeline.h"
#include "compiler/export/graph_text.h"
#include "compiler/report/explain.h"
#include "compiler/report/kept_bytes.h"
#include "compiler/target/expect.h"
#include "runtime/base/pending_file.h"
#include "runtime/program/codec.h"
#include "runtime/program/text.h"
#include "tools/command_line.h"
#include "tools/progress.h"

namespace sluice {
namespace {

constexpr int kBadInput = 1;
constexpr int kWrongUsage = 2;

constexpr const char* kFooter = R"(Examples:
  sluicec graphs/moe_ffn/train.json --set ep=4 -o layer.slp
  sluicec graphs/moe_ffn/train.json --set hidden=2048 --emit=moe > layer.mlir
  sluicec graphs/moe_ffn/forward.json --trainable gate_up_weight,down_weight -o layer.slp
  sluicec layer.mlir --stop-after=insert-events
  sluicec layer.mlir --emit=program-text
  sluicec graphs/moe_ffn/train.json --explain
  sluicec graphs/moe_ffn/train.json --set ep=8 --expect zipf:1.2 -o layer.slp
  sluicec graphs/moe_ffn/forward.json --encode int4:g64,rows=int8 -o layer.slp
  sluicec graphs/moe_ffn/forward.json --set activation=geglu --trainable all --emit=json > train.json
  sluicec graphs/moe_ffn/train.json --target ascend910b --set ep=8 -o layer.slp
  sluicec graphs/moe_ffn/train.json --emit=dot | dot -Tsvg > layer.svg

An unknown symbol or one out of its range is an error that lists the symbols of the graph.
Targets are files NAME.json in $SLUICE_TARGETS, else next to the compiler, else the built-in models (ascend910b, cpu,
h200); a path that ends in .json is used as it is.
Exit status: 0 done, 1 bad input or a file that cannot be written, 2 wrong usage.)";

moe::GraphOp findGraph(const Compiled& compiled) {
  return *compiled.graph->module.get().getOps<moe::GraphOp>().begin();
}

// 6144 as "6,144".
std::string grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string rowsAndTokens(const KeptBytes& kept, const char* row, const char* token) {
  if (kept.token == 0) return grouped(kept.row) + row;
  return fmt::format("{}{} and {}{}", grouped(kept.row), row, grouped(kept.token), token);
}

// `kind` is "text" or "json".
std::string formatExplanation(const Compiled& compiled, const std::string& kind) {
  const Explanation explanation = explain(compiled.program, findGraph(compiled), compiled.decisions);
  return kind == "json" ? printExplanationJson(*compiled.program, explanation)
                        : printExplanation(*compiled.program, explanation);
}

// Graph and families for Graphviz.
std::string formatDot(const Compiled& compiled) { return printDot(findGraph(compiled), *compiled.program); }

// "keeps 6,144 bytes per row (minimal: 4,608)", a line with the bytes per token if there are any; the chosen
// value comes first. `keep` is how the backward was derived: all, minimal or regather.
std::string keptText(const Compiled& compiled, const std::string& keep) {
  const bool keepsLittle = keep != "all";
  const moe::GraphOp op = findGraph(compiled);
  const bool inPlace = readsInPlace(*compiled.program);
  return fmt::format(
      "keeps {} ({}: {})\n", rowsAndTokens(keptBytes(op, inPlace), " bytes per row", " per token"),
      keepsLittle ? "all" : "minimal", rowsAndTokens(keptBytesOtherwise(op, keepsLittle, inPlace), "", ""));
}

// One line per phase, in milliseconds, and their sum.
std::string formatTimes(const Compiled& compiled) {
  std::string text;
  double all = 0;
  const auto line = [&](const std::string& phase, double seconds) {
    text += fmt::format("{:<18}{:>10.3f} ms\n", phase, seconds * 1e3);
  };
  for (const PhaseTime& time : compiled.times) {
    line(time.phase, time.seconds);
    all += time.seconds;
  }
  line("all", all);
  return text;
}

struct Arguments {
  std::string graph;
  std::string target = "cpu";
  std::vector<std::string> sets;
  std::string output;
  std::string emit;
  std::string stopAfter;
  std::vector<std::string> trainable;
  std::string cores;
  std::string expect;
  std::string explain;
  bool time = false;
  CompileOptions options;
};

int fail(const std::string& message, int status) {
  tools::printError(fmt::format("{}{}\n",
                                status == kWrongUsage || message.starts_with("error:") ? "sluicec: " : "",
                                tools::printable(message)));
  return status;
}

// Write errors are found when main flushes.
void show(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void declare(CLI::App& app, Arguments& arguments) {
  std::vector<std::string> phases;
  for (std::string_view phase : phaseNames()) phases.emplace_back(phase);
  app.add_option("graph", arguments.graph, "graph file, GRAPH.json or GRAPH.mlir")->required();
  app.add_option("--target", arguments.target,
                 "device model: a name, a file, or native, the model of this processor (default cpu)");
  app.add_option("--set", arguments.sets,
                 "SYMBOL=VALUE: sets a symbol of the graph, to a number or a word; may be repeated")
      ->allow_extra_args(false);
  app.add_option("-o,--output", arguments.output, "program file to write");
  app.add_option(
         "--emit", arguments.emit,
         "print moe (IR), program-text, json (the graph as a graph file) or dot (graph and families, for "
         "Graphviz) to standard output")
      ->check(CLI::IsMember({"moe", "program-text", "json", "dot"}));
  app.add_flag("--explain{text}", arguments.explain,
               "print space, slots, tasks and events of every node with the reasons, and the memory plan; "
               "--explain=json for tools");
  app.add_flag("--time", arguments.time, "print how long each phase took to standard error");
  app.add_option("--stop-after", arguments.stopAfter,
                 "print what this phase has made, IR or program text; no program is written")
      ->check(CLI::IsMember(phases));
  app.add_option("--cores", arguments.cores,
                 "cores instead of the target's: N, or cube=N,vector=N,communication=N for separate cores; "
                 "with send=N or return=N only so many of those that may communicate share the sends of a "
                 "dispatch or the returns of a combine");
  app.add_option("--slot-rows", arguments.options.slotRows, "rows per slot, a multiple of 16")
      ->check(CLI::Range(16, 65536));
  app.add_option("--tile", arguments.options.tile, "maximum rows and columns per task of a product")
      ->check(CLI::Range(1, 1048576));
  app.add_flag("--accumulate", arguments.options.accumulate,
               "add all weight gradients to the old content of their outputs");
  app.add_option(
         "--fuse", arguments.options.fuse,
         "all (default), none, or LIST of activation, activation-grad, scale: the nodes that are fused")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option(
      "--expect", arguments.expect,
      "routing for which slots and tiles are chosen: uniform (default), zipf:EXPONENT, or a JSON file "
      "with a list of the experts' shares");
  app.add_option("--trainable", arguments.trainable,
                 "LIST of inputs, or all: derives the entry backward, which computes their gradients")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--keep", arguments.options.keep,
                 "all (default), minimal or regather: what is kept for a derived backward; minimal computes "
                 "activations "
                 "again, and regather also dispatches rows again")
      ->check(CLI::IsMember({"all", "minimal", "regather"}));
  app.add_option("--grads", arguments.options.grads,
                 "F32 (default) or BF16: type of derived weight gradients")
      ->check(CLI::IsMember({"F32", "BF16"}));
  app.add_flag("--delay-weight-grads", arguments.options.delayWeightGrads,
               "weight gradients are computed by an entry weight_grads of their own, after backward");
  app.add_option(
      "--encode", arguments.options.encode,
      "what numbers are stored as, rounded to and sent as: an encoding, or PLACE=ENCODING,... with the "
      "places weights, weights.NAME, trained, rows, grads, kept and sent: int4:g64,rows=int8 or "
      "mxfp8,grads=mxfp8e5m2 (docs/PRECISION.md lists them; default bf16)");
  app.add_flag(
      "--copy-rows", arguments.options.copyRows,
      "a rank that is alone, too, copies tokens to rows and back, instead of reading them where they are; "
      "the results have the same bits");
  app.set_version_flag("--version", tools::versionText("sluicec", "LLVM " LLVM_VERSION_STRING),
                       tools::kVersionHelp);
  app.footer(kFooter);
}

// Accepts SYMBOL=VALUE; a value that begins like a word is one. Returns false for anything else.
bool addSet(const std::string& text, CompileOptions& options) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) return false;
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  if (std::isalpha(static_cast<unsigned char>(value[0])) != 0) {
    options.words.emplace_back(name, value);
    return true;
  }
  int64_t number = 0;
  const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  options.sets.emplace_back(name, number);
  return error == std::errc() && rest == value.data() + value.size();
}

// The error in the requested output, or an empty text.
std::string checkReportUsage(const Arguments& arguments) {
  if (!arguments.explain.empty() && arguments.explain != "text" && arguments.explain != "json")
    return fmt::format("--explain={}: expected text or json", arguments.explain);
  if (!arguments.explain.empty() && !arguments.emit.empty())
    return "--explain and --emit both print to standard output, expected one of them";
  const bool makesProgram =
      arguments.stopAfter.empty() && arguments.emit != "moe" && arguments.emit != "json";
  if (arguments.time && !makesProgram && arguments.output.empty())
    return "--time requires -o FILE, --explain, --emit=program-text or --emit=dot";
  if (!arguments.stopAfter.empty() && !arguments.explain.empty())
    return "--explain needs a program, but --stop-after makes none";
  return {};
}

// The error if arguments contradict each other, or an empty text.
std::string checkUsage(Arguments& arguments) {
  for (const std::string& set : arguments.sets)
    if (!addSet(set, arguments.options)) return fmt::format("--set {}: expected SYMBOL=VALUE", set);
  if (!arguments.trainable.empty()) arguments.options.trainable = arguments.trainable;
  if (!arguments.cores.empty())
    if (const std::string wrong = parseCores(arguments.cores, arguments.options); !wrong.empty())
      return wrong;
  if (arguments.options.keep != "all" && !arguments.options.trainable) return "--keep requires --trainable";
  if (arguments.options.grads != "F32" && !arguments.options.trainable) return "--grads requires --trainable";
  if (const std::string wrong = checkReportUsage(arguments); !wrong.empty()) return wrong;
  if (arguments.output.empty() && arguments.emit.empty() && arguments.stopAfter.empty() &&
      arguments.explain.empty())
    return "nothing to do, expected -o FILE, --emit, --explain or --stop-after";
  if (!arguments.stopAfter.empty() && !arguments.output.empty())
    return "-o needs a program, but --stop-after makes none";
  const std::string stage = isGraphPhase(arguments.stopAfter) ? "moe" : "program-text";
  if (!arguments.stopAfter.empty() && !arguments.emit.empty() && arguments.emit != stage)
    return fmt::format("--stop-after={} does not give --emit={}", arguments.stopAfter, arguments.emit);
  return {};
}

int printPhase(const Arguments& arguments, const Target& target) {
  const Expected<std::string> text = lower(arguments.graph, target, arguments.options, arguments.stopAfter);
  if (!text) return fail(text.error().message, kBadInput);
  show(*text);
  return 0;
}

std::string summary(const Arguments& arguments, const TaskProgram& program) {
  size_t tasks = 0;
  for (const Lane& lane : program.lanes)
    for (const auto& seat : lane.seats) tasks += seat.size();
  return fmt::format(
      "{}: {} for {}, {} ranks, {} families, {} tasks per window, {} events, {} regions, {} bytes",
      arguments.output, program.name, program.target, program.mesh.peers(), program.families.size(), tasks,
      program.events.size(), program.regions.size(), encode(program).size());
}

bool emitsGraph(const Arguments& arguments) { return arguments.emit == "json" || arguments.emit == "moe"; }

int printGraph(const Arguments& arguments, const Ir& graph) {
  const Expected<std::string> text =
      arguments.emit == "json" ? printGraphFile(graph, arguments.graph) : printIr(graph);
  if (!text) return fail(text.error().message, kBadInput);
  show(*text);
  return 0;
}

Expected<Compiled> compile(const Arguments& arguments, const Target& target) {
  tools::Progress progress(tools::Redraw::kByItself);
  progress.at(1, 1, "compiling " + arguments.graph);
  return compileWithReport(arguments.graph, target, arguments.options);
}

int makeProgram(const Arguments& arguments, const Target& target) {
  const Expected<Compiled> compiled = compile(arguments, target);
  if (!compiled) return fail(compiled.error().message, kBadInput);
  const TaskProgram& program = *compiled->program;
  if (!arguments.output.empty())
    if (Status written = writeProgram(program, arguments.output); !written)
      return fail("error: " + written.error().message, kBadInput);
  if (arguments.time) tools::printError(formatTimes(*compiled));
  if (!arguments.explain.empty()) show(formatExplanation(*compiled, arguments.explain));
  if (arguments.emit == "dot") show(formatDot(*compiled));
  if (arguments.emit == "program-text") show(printProgram(program));
  if (emitsGraph(arguments)) return printGraph(arguments, *compiled->graph);
  if (!arguments.emit.empty() || !arguments.explain.empty()) return 0;
  show(summary(arguments, program) + "\n");
  if (!arguments.options.trainable) return 0;
  show(keptText(*compiled, arguments.options.keep));
  return 0;
}

int run(Arguments& arguments, const char* argv0) {
  const Expected<Target> target = loadTarget(arguments.target, targetFolders(argv0));
  if (!target) return fail(target.error().message, kBadInput);
  if (!arguments.expect.empty()) {
    const Expected<Expectation> expect = readExpectation(arguments.expect);
    if (!expect) return fail(expect.error().message, kBadInput);
    arguments.options.expect = *expect;
  }
  if (!arguments.stopAfter.empty()) return printPhase(arguments, *target);
  if (!arguments.output.empty() || !emitsGraph(arguments)) return makeProgram(arguments, *target);
  const Expected<IrPointer> graph = deriveGraph(arguments.graph, *target, arguments.options);
  if (!graph) return fail(graph.error().message, kBadInput);
  return printGraph(arguments, **graph);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  sluice::tools::openClosedStreams();
  sluice::removeNamedFilesOnSignals();
  if (const std::string empty = sluice::tools::findEmptyArgument(argc, argv); !empty.empty())
    return sluice::fail(empty, sluice::kWrongUsage);
  if (const std::string old = sluice::tools::findOldOption(argc, argv); !old.empty())
    return sluice::fail(old, sluice::kWrongUsage);
  CLI::App app("sluicec: compiles a graph of a MoE-FFN layer to a task program", "sluicec");
  sluice::Arguments arguments;
  sluice::declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return sluice::fail(error.what(), sluice::kWrongUsage);
  }
  if (const std::string wrong = sluice::checkUsage(arguments); !wrong.empty())
    return sluice::fail(wrong, sluice::kWrongUsage);
  const int status = sluice::run(arguments, argv[0]);
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  return sluice::fail("error: standard output cannot be written", sluice::kBadInput);
}
