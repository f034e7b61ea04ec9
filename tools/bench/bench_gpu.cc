#include "tools/bench/bench_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/bench/product_peer.h"
#include "tools/cli/files.h"
#include "tools/overlap/overlap_report.h"

namespace sluice::tools {

namespace {

Expected<GpuSamples> measure(const BenchGpu& gpu, const GpuPlan& plan, const GpuCase& c,
                             const ProgramsOf& programsOf) {
  const Expected<GpuPrograms> programs = programsOf(c);
  if (!programs) return programs.error();
  const Expected<BackendMaker> backends = gpu.backends();
  if (!backends) return backends.error();
  return measureOnGpu(c, *programs, plan, *backends, gpu.peers);
}

using Json = nlohmann::ordered_json;

// The median; of two in the middle the upper one, as in Samples.
double computeMedian(const std::vector<StepSeconds>& all, double StepSeconds::* part) {
  std::vector<double> seconds;
  for (const StepSeconds& each : all) seconds.push_back(each.*part);
  std::nth_element(seconds.begin(), seconds.begin() + std::ssize(seconds) / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

constexpr Column kColumns[] = {{"step ms", 11},   {"min", 10},    {"max", 10},
                               {"launch ms", 11}, {"bind ms", 9}, {"tables ms", 11},
                               {"TFLOP/s", 9},    {"of peak", 9}, {"launch of peak", 16}};

std::vector<std::string> formatCells(const GpuLine& line, const Work& work) {
  const GpuFigures f = computeFigures(line, work);
  const auto milli = [](double seconds) { return seconds > 0 ? fmt::format("{:.3f}", seconds * 1e3) : "-"; };
  const auto percent = [](double share) { return share > 0 ? fmt::format("{:.1f}%", 100 * share) : "-"; };
  return {milli(f.median),
          milli(f.least),
          milli(f.most),
          milli(f.launch),
          milli(f.bind),
          milli(f.tables),
          fmt::format("{:.1f}", f.flops * 1e-12),
          percent(f.shareOfPeak),
          percent(f.launchShare)};
}

Json secondsJson(const std::vector<StepSeconds>& all, double StepSeconds::* part) {
  Json seconds = Json::array();
  for (const StepSeconds& each : all) seconds.push_back(each.*part);
  return seconds;
}

Json lineJson(const GpuLine& line) {
  Json json = {{"what", line.what}};
  if (!line.error.empty()) json["error"] = line.error;
  if (line.difference) json["difference"] = *line.difference;
  if (!line.note.empty()) json["note"] = line.note;
  for (const auto& [name, part] :
       {std::pair("step_seconds", &StepSeconds::step), std::pair("launch_seconds", &StepSeconds::launch),
        std::pair("bind_seconds", &StepSeconds::bind), std::pair("tables_seconds", &StepSeconds::tables)})
    json[name] = secondsJson(line.all, part);
  return json;
}

}  // namespace

Expected<BenchGpu> findBenchGpu(const std::string& device) {
  const Expected<GpuFacts> facts = describeCuda(device);
  if (!facts) return facts.error();
  return BenchGpu{*facts, [device] { return findCuda(device, 1); }, &makeCublasPeers};
}

Status benchOnGpu(const BenchGpu& gpu, const GpuBench& bench, const ProgramsOf& programsOf) {
  if (Status printed = printText(formatText(gpu.facts, bench.plan)); !printed) return printed;
  std::vector<GpuOutcome> all;
  size_t failed = 0;
  for (const GpuCase& c : bench.cases) {
    all.push_back({c.name, measure(gpu, bench.plan, c, programsOf)});
    const Expected<GpuSamples>& samples = all.back().samples;
    failed += !samples || hasErrors(*samples);
    const std::string text =
        samples ? formatText(*samples) : fmt::format("{}: error: {}\n", c.name, samples.error().message);
    if (Status printed = printText("\n" + text); !printed) return printed;
  }
  if (!bench.json.empty())
    if (Status written = writeText(bench.json, formatJson(gpu.facts, all)); !written) return written;
  if (failed == 0) return {};
  return Error{fmt::format("{} of {} cases have errors", failed, all.size())};
}

GpuFigures computeFigures(const GpuLine& line, const Work& work) {
  GpuFigures f;
  const auto [least, most] = std::ranges::minmax(line.all, {}, &StepSeconds::step);
  f.least = least.step;
  f.most = most.step;
  f.median = computeMedian(line.all, &StepSeconds::step);
  f.launch = computeMedian(line.all, &StepSeconds::launch);
  f.bind = computeMedian(line.all, &StepSeconds::bind);
  f.tables = computeMedian(line.all, &StepSeconds::tables);
  if (f.median > 0) f.flops = work.flops / f.median;
  f.shareOfPeak = f.flops / kGpuPeak;
  if (f.launch > 0) f.launchShare = work.flops / f.launch / kGpuPeak;
  return f;
}

std::string formatText(const GpuFacts& gpu, const GpuPlan& plan) {
  return fmt::format(
      "{}: {} multiprocessors of at most {:.0f} MHz; peak {:.0f} TFLOP/s of bf16 (H100 and H200 SXM)\n"
      "medians of {} repetitions in turn, tensors in memory of the GPU\n",
      gpu.name, gpu.multiprocessors, gpu.clock * 1e-6, kGpuPeak * 1e-12, plan.repeat);
}

std::string formatText(const GpuSamples& samples) {
  const RowsCase& c = samples.rows;
  const auto [least, most] = std::ranges::minmax(c.rows);
  std::string text = fmt::format("{}: H {}, I {}, {} experts, {} rows, {} to {} per expert\n", samples.name,
                                 c.hidden, c.inter, c.experts(), c.allRows(), least, most);
  size_t width = 0;
  for (const GpuPass& pass : samples.passes)
    for (const GpuLine& line : pass.lines) width = std::max(width, line.what.size());
  text += fmt::format("  {:<9}{:<{}}{}\n", "pass", "", width, textLine(kColumns, listHeads(kColumns)));
  std::string notes;
  for (const GpuPass& pass : samples.passes)
    for (const GpuLine& line : pass.lines) {
      const std::string begin = fmt::format("  {:<9}{:<{}}", passName(pass.pass), line.what, width);
      if (line.error.empty())
        text += begin + textLine(kColumns, formatCells(line, pass.work)) + "\n";
      else
        text += fmt::format("{}  error: {}\n", begin, line.error);
      if (line.difference)
        notes += fmt::format("  {:<9}{}: results differ by {:.1e}{}\n", passName(pass.pass), line.what,
                             *line.difference, line.note.empty() ? "" : "; " + line.note);
    }
  if (!samples.withoutPeers.empty()) notes += fmt::format("  no peer: {}\n", samples.withoutPeers);
  return text + notes;
}

bool hasErrors(const GpuSamples& samples) {
  return std::ranges::any_of(samples.passes, [](const GpuPass& pass) {
    return std::ranges::any_of(pass.lines, [](const GpuLine& line) { return !line.error.empty(); });
  });
}

std::string formatJson(const GpuFacts& gpu, const std::vector<GpuOutcome>& all) {
  Json cases = Json::array();
  for (const GpuOutcome& outcome : all) {
    Json json = {{"name", outcome.name}};
    if (!outcome.samples) {
      json["error"] = outcome.samples.error().message;
      cases.push_back(json);
      continue;
    }
    const GpuSamples& samples = *outcome.samples;
    json["hidden"] = samples.rows.hidden;
    json["intermediate"] = samples.rows.inter;
    json["rows"] = samples.rows.rows;
    if (!samples.withoutPeers.empty()) json["without_peers"] = samples.withoutPeers;
    json["passes"] = Json::array();
    for (const GpuPass& pass : samples.passes) {
      Json lines = Json::array();
      for (const GpuLine& line : pass.lines) lines.push_back(lineJson(line));
      json["passes"].push_back({{"pass", passName(pass.pass)}, {"flops", pass.work.flops}, {"lines", lines}});
    }
    cases.push_back(json);
  }
  const Json root = {{"gpu", gpu.name},
                     {"multiprocessors", gpu.multiprocessors},
                     {"clock_hz", gpu.clock},
                     {"peak_flops", kGpuPeak},
                     {"cases", cases}};
  return root.dump(2) + "\n";
}

}  // namespace sluice::tools
