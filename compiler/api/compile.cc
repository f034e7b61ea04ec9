#include "compiler/api/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

#include "compiler/analysis/fusion.h"
#include "compiler/analysis/in_place.h"
#include "compiler/api/core_options.h"
#include "compiler/api/pipeline.h"
#include "compiler/dialect/diagnostics.h"
#include "compiler/dialect/moe.h"
#include "compiler/export/graph_text.h"
#include "compiler/graph/mlir_text.h"
#include "compiler/graph/read_graph.h"
#include "compiler/passes/passes.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/base/encodings.h"
#include "runtime/program/text.h"
#include "runtime/program/verify.h"

namespace sluice {

namespace {

using Module = mlir::OwningOpRef<mlir::ModuleOp>;

Target adjust(Target target, const CompileOptions& options) {
  if (options.cores != 0) target.cores = options.cores;
  if (target.cubeCores != 0) adjustSeparateCores(target, options.separate);
  if (options.slotRows != 0) target.slotRows = options.slotRows;
  if (options.tile != 0) target.tiles = {options.tile, options.tile, options.tile};
  return target;
}

Status checkOptions(const CompileOptions& options) {
  const auto check = [](const char* name, int32_t value, int32_t most) -> Status {
    if (value >= 0 && value <= most) return {};
    return Error{fmt::format("error: {} is {}, expected 1 to {}", name, value, most)};
  };
  if (Status status = check("the number of cores", options.cores, 4096); !status) return status;
  if (options.trainable && options.trainable->empty())
    return Error{"error: no tensor is trainable, expected names of inputs or 'all'"};
  const Expected<Encodings> encodings = parseEncodings(options.encode);
  if (!encodings) return Error{"error: " + encodings.error().message};
  if (encodings->hasCodes() && options.trainable == std::vector<std::string>{"all"})
    return Error{fmt::format(
        "error: encode: {} leaves weights that are trained as they are, and all are: expected the "
        "names of the inputs that are trained",
        options.encode)};
  if (options.keep != "all" && options.keep != "minimal" && options.keep != "regather")
    return Error{fmt::format("error: cannot keep '{}', expected all, minimal or regather", options.keep)};
  FusionKinds kinds;
  if (const std::string wrong = parseFusionKinds(options.fuse, kinds); !wrong.empty())
    return Error{fmt::format(
        "error: cannot fuse {}, expected all, none, or some of activation, activation-grad, scale", wrong)};
  if (Status status = check("the tile", options.tile, kMaxDim); !status) return status;
  if (Status status = check("the number of rows of a slot", options.slotRows, 1 << 16); !status)
    return status;
  if (options.slotRows % 16 != 0)
    return Error{fmt::format("error: the number of rows of a slot is {}, expected a multiple of 16",
                             options.slotRows)};
  return {};
}

std::string optionLine(const CompileOptions& options) {
  std::string line;
  const auto add = [&](const std::string& word) { line += (line.empty() ? "" : " ") + word; };
  for (const auto& [name, value] : options.sets) add(fmt::format("--set {}={}", name, value));
  for (const auto& [name, word] : options.words) add(fmt::format("--set {}={}", name, word));
  if (const std::string cores = coresText(options); !cores.empty()) add("--cores " + cores);
  if (options.slotRows != 0) add(fmt::format("--slot-rows {}", options.slotRows));
  if (options.tile != 0) add(fmt::format("--tile {}", options.tile));
  if (options.accumulate) add("--accumulate");
  if (options.expect != Expectation{}) add(fmt::format("--expect {}", options.expect.name));
  if (options.keep != "all") add(fmt::format("--keep {}", options.keep));
  if (options.grads != "F32") add(fmt::format("--grads {}", options.grads));
  if (options.delayWeightGrads) add("--delay-weight-grads");
  if (const std::string text = printEncodings(*parseEncodings(options.encode)); !text.empty())
    add(fmt::format("--encode {}", text));
  if (options.copyRows) add("--copy-rows");
  if (!options.fuse.empty()) add(fmt::format("--fuse {}", fmt::join(options.fuse, ",")));
  if (options.trainable) add(fmt::format("--trainable {}", fmt::join(*options.trainable, ",")));
  return line;
}

std::string printed(mlir::Operation* op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream);
  return text;
}

// FNV-1a over the printed graph without locations. 0 stands for no graph.
uint64_t hashContent(mlir::ModuleOp module) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : printed(module)) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return std::max<uint64_t>(hash, 1);
}

Expected<Module> parseMlir(const std::string& path, const CompileOptions& options,
                           mlir::MLIRContext& context) {
  if (!options.sets.empty() || !options.words.empty())
    return Error{
        fmt::format("{}: error: symbol '{}' cannot be set, since an .mlir file has its sizes", path,
                    options.sets.empty() ? options.words.front().first : options.sets.front().first)};
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed))
    return Error{fmt::format("{}: error: no such file, or not a regular one", path)};
  llvm::ErrorOr<std::unique_ptr<llvm::MemoryBuffer>> file = llvm::MemoryBuffer::getFile(path);
  if (!file) return Error{fmt::format("{}: error: cannot read: {}", path, file.getError().message())};
  if (Status status = checkMlirText((*file)->getBuffer(), path); !status) return status.error();
  const auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(*file), llvm::SMLoc());
  const mlir::ParserConfig config(&context, /*verifyAfterParse=*/true);
  return mlir::parseSourceFile<mlir::ModuleOp>(sources, config);
}

// Adds the time between its construction and destruction.
class Stopwatch {
 public:
  Stopwatch(std::vector<PhaseTime>& times, std::string phase) : times_(times), phase_(std::move(phase)) {}
  ~Stopwatch() {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
    times_.push_back({std::move(phase_), time.count()});
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::vector<PhaseTime>& times_;
  std::string phase_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Times passes, and counts how often each one ran, for a manager that does not run them in parallel. Managers
// of nested passes have no time of their own.
class PassTimer : public mlir::PassInstrumentation {
 public:
  PassTimer(std::vector<PhaseTime>& times, std::map<std::string, int>& runs) : times_(times), runs_(runs) {}

  void runBeforePass(mlir::Pass* pass, mlir::Operation*) override {
    if (!pass->getArgument().empty()) watch_.emplace(times_, pass->getArgument().str());
  }
  void runAfterPass(mlir::Pass* pass, mlir::Operation*) override {
    if (pass->getArgument().empty()) return;
    ++runs_[pass->getArgument().str()];
    watch_.reset();
  }

 private:
  std::vector<PhaseTime>& times_;
  std::map<std::string, int>& runs_;
  std::optional<Stopwatch> watch_;
};

// One compilation: a context, the module in it, and the program made from it. Every phase runs at most once.
// `text`, if given, is the content of the graph file, which is then not read.
class Compilation {
 public:
  Compilation(const std::string& path, const Target& target, const CompileOptions& options,
              std::optional<std::string_view> text = {})
      : path_(path),
        text_(text),
        target_(adjust(target, options)),
        options_(options),
        context_(std::make_shared<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED)),
        report_(*context_, path) {
    context_->printOpOnDiagnostic(false);
    context_->loadDialect<moe::MoeDialect>();
  }

  Status run(const std::string& stopAfter) {
    if (Status status = checkOptions(options_); !status) return status;
    if (Status status = checkCoreOptions(target_, options_); !status) return status;
    describeCores(target_, options_, decisions_);
    const bool isMlir = path_.ends_with(".mlir");
    if (!isMlir && !path_.ends_with(".json"))
      return Error{fmt::format("{}: error: is neither .json nor .mlir", path_)};
    if (Status status = read(isMlir); !status) return status;
    graphHash_ = hashContent(*module_);
    if (Status status = runGraphPhases(stopAfter); !status || isGraphPhase(stopAfter)) return status;
    return runTaskPhases(stopAfter);
  }

  // The current IR.
  IrPointer snapshot() {
    return std::make_shared<const Ir>(context_, mlir::OwningOpRef<mlir::ModuleOp>(module_->clone()));
  }

  // The IR after `encode-dispatched`, from which graph files are printed.
  const IrPointer& graph() const { return graph_; }

  // The result of the last phase that ran.
  std::string text() const { return program_ ? printProgram(*program_) : printed(*module_); }

  Expected<Compiled> finish() {
    Expected<VerifiedProgram> verified = timed("verify", [&] { return verify(std::move(*program_)); });
    if (!verified) return Error{fmt::format("{}: error: {}", path_, verified.error().message)};
    return Compiled{std::move(*verified), graph_, std::move(decisions_), std::move(times_), std::move(runs_)};
  }

 private:
  Status read(bool isMlir) {
    const Stopwatch watch(times_, "read");
    ++runs_["read"];
    const SymbolSets sets = {options_.sets, options_.words};
    Expected<Module> module = isMlir  ? parseMlir(path_, options_, *context_)
                              : text_ ? readGraphText(*text_, path_, sets, *context_)
                                      : readGraph(path_, sets, *context_);
    if (!module) return module.error();
    if (*module && options_.accumulate) moe::accumulateAll(module->get());
    if (!*module || failed(mlir::verify(module->get()))) return report_.error();
    module_ = std::move(*module);
    return {};
  }

  Status runGraphPhases(const std::string& stopAfter) {
    for (std::string_view phase : phaseNames()) {
      if (!isGraphPhase(phase)) break;
      if (phase == "propagate-splits")
        for (auto graph : module_->getOps<moe::GraphOp>()) declared_ = findDeclaredSlots(graph);
      mlir::PassManager passes(context_.get());
      addGraphPhase(passes, phase, target_, options_);
      passes.addInstrumentation(std::make_unique<PassTimer>(times_, runs_));
      if (failed(passes.run(*module_))) return report_.error();
      if (phase == "encode-dispatched") graph_ = snapshot();
      if (phase == stopAfter) break;
    }
    return {};
  }

  Status runTaskPhases(const std::string& stopAfter) {
    const auto form = [&] { return formTasks(*module_, target_, optionLine(options_), graphHash_); };
    if (Status status = take("form-tasks", form); !status) return status;
    if (stopAfter == "form-tasks") return {};
    const auto inPlace = [&]() -> Expected<TaskProgram> {
      return options_.copyRows ? std::move(*program_) : readInPlace(std::move(*program_));
    };
    if (Status status = take("read-in-place", inPlace); !status) return status;
    if (stopAfter == "read-in-place") return {};
    const Expected<TaskOptions> chosen = timed("choose sizes", [&] {
      return chooseTaskOptions(*program_, declared_, target_, options_, decisions_);
    });
    if (!chosen) return located(chosen.error());
    for (const TaskPhase& phase : taskPhases()) {
      const auto run = [&] { return phase.run(std::move(*program_), *chosen); };
      if (Status status = take(phase.name, run); !status) return status;
      if (phase.name == stopAfter) break;
    }
    return {};
  }

  // Runs a phase that makes or replaces the program.
  template <class Run>
  Status take(std::string_view phase, const Run& run) {
    ++runs_[std::string(phase)];
    Expected<TaskProgram> made = timed(phase, run);
    if (!made) return located(made.error());
    program_ = std::move(*made);
    return {};
  }

  template <class Run>
  std::invoke_result_t<Run> timed(std::string_view phase, const Run& run) {
    const Stopwatch watch(times_, std::string(phase));
    return run();
  }

  // Adds the path of the graph if the error has no place.
  Error located(const Error& error) const {
    return error.message.starts_with("error:") ? Error{path_ + ": " + error.message} : error;
  }

  std::vector<PhaseTime> times_;
  std::map<std::string, int> runs_;
  std::vector<Decision> decisions_;
  const std::string path_;
  const std::optional<std::string_view> text_;
  const Target target_;
  const CompileOptions options_;
  const std::shared_ptr<mlir::MLIRContext> context_;
  DiagnosticReport report_;
  Module module_;
  uint64_t graphHash_ = 0;
  IrPointer graph_;
  DeclaredSlots declared_;
  std::optional<TaskProgram> program_;
};

}  // namespace

Expected<TaskProgram> compile(const std::string& path, const Target& target, const CompileOptions& options) {
  const Expected<Compiled> compiled = compileWithReport(path, target, options);
  if (!compiled) return compiled.error();
  return *compiled->program;
}

Expected<TaskProgram> compileText(std::string_view text, const std::string& name, const Target& target,
                                  const CompileOptions& options) {
  Compilation compilation(name, target, options, text);
  if (Status status = compilation.run(""); !status) return status.error();
  const Expected<Compiled> compiled = compilation.finish();
  if (!compiled) return compiled.error();
  return *compiled->program;
}

Expected<Compiled> compileWithReport(const std::string& path, const Target& target,
                                     const CompileOptions& options) {
  Compilation compilation(path, target, options);
  if (Status status = compilation.run(""); !status) return status.error();
  return compilation.finish();
}

Expected<IrPointer> deriveGraph(const std::string& path, const Target& target,
                                const CompileOptions& options) {
  Compilation compilation(path, target, options);
  if (Status status = compilation.run("encode-dispatched"); !status) return status.error();
  return compilation.graph();
}

Expected<std::string> printGraphFile(const Ir& graph, const std::string& path) {
  const auto graphs = llvm::to_vector(graph.module.get().getOps<moe::GraphOp>());
  if (graphs.size() == 1) return printGraphJson(graphs.front(), path);
  return Error{fmt::format("{}: error: has {} moe.graph ops, expected one", path, graphs.size())};
}

std::string printIr(const Ir& ir) { return printed(*ir.module); }

Expected<std::string> lower(const std::string& path, const Target& target, const CompileOptions& options,
                            const std::string& stopAfter) {
  const std::vector<std::string_view> phases = phaseNames();
  if (!stopAfter.empty() && std::ranges::find(phases, stopAfter) == phases.end())
    return Error{
        fmt::format("error: unknown phase '{}', expected one of {}", stopAfter, fmt::join(phases, ", "))};
  Compilation compilation(path, target, options);
  if (Status status = compilation.run(stopAfter); !status) return status.error();
  return compilation.text();
}

}  // namespace sluice
