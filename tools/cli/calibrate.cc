// sluice calibrate: measures this machine and writes the device model from which the compiler chooses sizes.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "compiler/target/target.h"
#include "runtime/base/machine.h"
#include "runtime/workers/cores.h"
#include "tools/calibrate/measure.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/progress.h"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

struct CalibrateOptions {
  std::string output;
  bool quick = false;
};

struct Measured {
  int cores = 1;
  MeasuredMatrix matrix;
  Rates rates;
  double drift = 0;  // by how much the same product became faster or slower meanwhile
};

Json figure(Json value, const std::string& source) {
  return {{"value", std::move(value)}, {"source", source}};
}

constexpr double kCalm = 0.05;  // the largest drift of a machine with nothing else to do

// Four digits: more would be noise.
double rounded(double value) { return std::stod(fmt::format("{:.4g}", value)); }

Json productJson(const ProductRate& rate) {
  return {{"flops", rounded(rate.flops)},
          {"half_rows", rounded(rate.halfRows)},
          {"half_columns", rounded(rate.halfColumns)},
          {"half_sum", rounded(rate.halfSum)}};
}

void addRates(const Measured& measured, const std::string& by, Json& root) {
  const Rates& r = measured.rates;
  root["matrix"] =
      figure({{"gmm", productJson(r.matrix.gmm)},
              {"gmm_transposed", productJson(r.matrix.gmmTransposed)},
              {"weight_grad", productJson(r.matrix.weightGrad)},
              {"row_unit", r.matrix.rowUnit},
              {"column_unit", r.matrix.columnUnit},
              {"row_block", r.matrix.rowBlock},
              {"sum_block", r.matrix.sumBlock}},
             fmt::format("{}: products of 16 to 512 rows in cache, fitted within {:.0f}%; blocks of the "
                         "kernels",
                         by, 100 * measured.matrix.worstError));
  root["vector"] = figure({{"activation", rounded(r.vector.activation)},
                           {"activation_grad", rounded(r.vector.activationGrad)},
                           {"sum", rounded(r.vector.sum)},
                           {"copy", rounded(r.vector.copy)},
                           {"round", rounded(r.vector.round)}},
                          by + ": elements per second in cache");
  root["memory"] = figure(
      {{"core_read", rounded(r.memory.coreRead)},
       {"core_write", rounded(r.memory.coreWrite)},
       {"shared_read", rounded(r.memory.sharedRead)},
       {"shared_write", rounded(r.memory.sharedWrite)},
       {"half_run", rounded(r.memory.halfRun)},
       {"overlap", rounded(r.memory.overlap)},
       {"write_overlap", rounded(r.memory.writeOverlap)}},
      by + ": one thread, then one on every core, writing past the caches; runs and overlap of products "
           "with new weights, and of new weight gradients");
  root["caches"] = figure(
      {{"core", r.caches.core}, {"core_spill", rounded(r.caches.coreSpill)}, {"shared", r.caches.shared}},
      by + ": sizes of the second and the last level by hwloc; rate of the last level");
  root["link"] = figure({{"bandwidth", rounded(r.link.bandwidth)}, {"latency", rounded(r.link.latency)}},
                        by + ": rows copied to another thread's memory, a counter that goes back and forth");
  root["task"] =
      figure(rounded(r.task), by + ": seconds of a core for a task of 8 lanes that wait for each other");
}

// Figures that are not measured have the defaults of a Target; a compiler that knows the rates chooses
// better.
std::string targetJson(const Measured& measured, const std::string& name, const std::string& by) {
  const Target fixed;
  const std::string fallback = "where the cost model is not used";
  Json root;
  root["name"] = name;
  root["doc"] = "This machine: cores that run matrix, vector and communication tasks alike.";
  if (const std::string processor = processorModel(); !processor.empty())
    root["processors"] = figure(Json::array({processor}), "vendor, family and model in /proc/cpuinfo");
  root["core_kind"] = figure("unified", "every core has the matrix and the vector unit");
  root["cores"] =
      figure(measured.cores, by + ": cores that a process may use; two hardware threads of one count once");
  root["slot_rows"] = figure(fixed.slotRows, fallback);
  root["token_slot"] = figure(fixed.tokenSlot, fallback);
  root["gmm_tile_columns"] = figure(fixed.tiles.gmmColumns, fallback);
  root["weight_grad_tile"] = figure({fixed.tiles.weightGradRows, fixed.tiles.weightGradColumns}, fallback);
  const Windows& w = fixed.windows;
  root["windows"] = figure({{"tokens", w.tokens},
                            {"rows", w.rows},
                            {"sends", w.sends},
                            {"returns", w.returns},
                            {"experts", w.experts}},
                           "enough tasks to deal to all cores, tables of a few KiB per core");
  addRates(measured, by, root);
  return root.dump(2) + "\n";
}

Expected<Measured> measure(const ops::KernelSet& kernels, const Effort& effort) {
  Measured measured;
  measured.cores = usableCores().count;
  Progress progress(Redraw::kAtSteps);
  int step = 0;
  const auto begin = [&](const char* what) {
    constexpr int kSteps = 7;
    if (progress.at(++step, kSteps, fmt::format("measuring {}", what))) letTerminalRest();
  };
  begin("products");
  const double first = referenceSeconds(kernels, effort);
  measured.matrix = measureMatrix(kernels, effort);
  measured.rates.matrix = measured.matrix.rates;
  begin("element-wise kernels");
  measured.rates.vector = measureVector(kernels, effort);
  begin("memory");
  const auto memory = measureMemory(kernels, measured.cores, effort);
  if (!memory) return memory.error();
  measured.rates.memory = *memory;
  begin("caches");
  const auto caches = measureCaches(effort);
  if (!caches) return caches.error();
  measured.rates.caches = *caches;
  begin("the link to another rank");
  const auto link = measureLink(kernels, measured.cores, effort);
  if (!link) return link.error();
  measured.rates.link = *link;
  begin("the cost of a task");
  const Expected<double> task = measureTask(measured.cores, effort);
  if (!task) return task.error();
  measured.rates.task = *task;
  begin("products again");
  measured.drift = std::abs(referenceSeconds(kernels, effort) / first - 1);
  return measured;
}

std::string summary(const Measured& m) {
  const Rates& r = m.rates;
  const auto product = [](const char* name, const ProductRate& rate) {
    return fmt::format(
        "{:<16}{:>9.1f} GFLOP/s; half of it at {:.1f} rows, {:.1f} columns, {:.1f} of the sum\n", name,
        rate.flops * 1e-9, rate.halfRows, rate.halfColumns, rate.halfSum);
  };
  return fmt::format("{} cores\n", m.cores) + product("gmm", r.matrix.gmm) +
         product("gmm_transposed", r.matrix.gmmTransposed) + product("weight_grad", r.matrix.weightGrad) +
         fmt::format(
             "{:<16}{:>9.1f} GB/s read, {:.1f} written; all cores {:.1f} and {:.1f}; {:.0f}% and {:.0f}% "
             "hidden\n",
             "memory", r.memory.coreRead * 1e-9, r.memory.coreWrite * 1e-9, r.memory.sharedRead * 1e-9,
             r.memory.sharedWrite * 1e-9, 100 * r.memory.overlap, 100 * r.memory.writeOverlap) +
         fmt::format("{:<16}{:>9.1f} M elements/s, gradient {:.1f}, sum {:.1f}, copy {:.1f}, round {:.1f}\n",
                     "activation", r.vector.activation * 1e-6, r.vector.activationGrad * 1e-6,
                     r.vector.sum * 1e-6, r.vector.copy * 1e-6, r.vector.round * 1e-6) +
         fmt::format("{:<16}{:>9.2f} us\n", "task", r.task * 1e6) +
         fmt::format(
             "{:<16}{:>9.0f} % is the worst difference between a product and its formula; the speed of a "
             "core changed by {:.0f}% meanwhile{}\n",
             "accuracy", 100 * m.matrix.worstError, 100 * m.drift,
             m.drift > kCalm ? ": other work disturbs it, run it again" : "");
}

Expected<int> calibrate(const CalibrateOptions& options) {
  const Expected<const ops::KernelSet*> kernels = ops::selectKernels();
  if (!kernels) return kernels.error();
  if (!options.output.empty())
    if (Status status = probeWritable({options.output}); !status) return status.error();
  Effort effort;
  if (options.quick) effort = {.run = 0.001, .bytes = size_t{64} << 20, .passes = 2};
  const Expected<Measured> measured = measure(**kernels, effort);
  if (!measured) return measured.error();
  const std::string stem = std::filesystem::path(options.output).stem().string();
  const std::string by = fmt::format("measured{} by sluice calibrate with {} kernels",
                                     options.quick ? " quickly" : "", ops::isaName((*kernels)->isa));
  const std::string text = targetJson(*measured, stem.empty() ? "cpu" : stem, by);
  if (!options.output.empty())
    if (Status status = writeText(options.output, text); !status) return status.error();
  return succeededIf(printText(options.output.empty() ? text : summary(*measured)));
}

}  // namespace

Command addCalibrate(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("calibrate", "measure this machine and write its device model");
  const auto options = std::make_shared<CalibrateOptions>();
  app->add_option("-o,--output", options->output, "device model to write (default: standard output)")
      ->type_name("cpu.json");
  app->add_flag("--quick", options->quick, "takes one second instead of ten and is less exact");
  app->footer(
      R"(Measures products, element-wise kernels, memory, caches and the cost of a task; takes the best of
many short runs, so that other work on the machine matters little. The file is complete or does not exist.

examples:
  sluice calibrate -o here.json
  sluicec graphs/moe_ffn/train.json --target ./here.json -o layer.slp

exit status: 0 done, 1 a file that cannot be written, 2 wrong usage)");
  return {app, [options] { return calibrate(*options); }};
}

}  // namespace sluice::tools
