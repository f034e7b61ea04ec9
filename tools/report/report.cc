#include "tools/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/one_line.h"
#include "runtime/program/text_names.h"
#include "tools/report/page/template.h"
#include "tools/report/sections.h"
#include "tools/report/tables.h"

namespace sluice::tools {
namespace {

constexpr size_t kMaxSpans = 5'000'000;  // a browser's texts end at 512 MB
constexpr size_t kMaxTracks = 65535;
constexpr size_t kTextRows = 16;

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts programFacts(const ReportSource& source) {
  const TaskProgram& program = source.program.tables();
  std::string symbols;
  for (const Symbol& symbol : program.symbols)
    symbols += fmt::format("{}{}={}", symbols.empty() ? "" : " ", symbol.name, symbol.value);
  Facts facts = {
      {"target", program.target},
      {"sizes", symbols},
      {"ranks", fmt::format("{} ({} x {})", program.mesh.peers(), program.mesh.ep, program.mesh.tp)},
      {"experts", fmt::format("{}, {} per token", program.experts, program.topK)},
      {"tokens", fmt::format("at most {} per rank", program.maxTokens)}};
  if (!program.options.empty()) facts.emplace_back("options", program.options);
  return facts;
}

Facts runFacts(const ReportSource& source, const Run& run) {
  int64_t dropped = 0;
  for (const Trace& trace : source.ranks) dropped += trace.dropped;
  Facts facts = {{"workers", fmt::format("{} per rank", run.workers)},
                 {"spans", fmt::format("{}, {} dropped", run.spans.size(), dropped)}};
  std::string failed, absent;
  for (size_t rank = 0; rank < source.ranks.size(); ++rank) {
    const Trace& trace = source.ranks[rank];
    if (trace.isThere() && !trace.hasFailed()) continue;
    std::string& list = trace.hasFailed() ? failed : absent;
    if (!list.empty()) list += ", ";
    list += source.rankName(rank);
    if (trace.hasFailed())
      list += fmt::format(" in step {} ({})", trace.failed.step,
                          source.program.tables().at(trace.failed.entry).name);
  }
  if (!failed.empty()) facts.emplace_back("failed", failed);
  if (!absent.empty()) facts.emplace_back("no trace of", absent);
  if (!run.leftOut.empty()) facts.emplace_back("left out", run.leftOut);
  if (!run.gaps.empty())
    facts.emplace_back("not shown", "arrows, critical path, overlap and experts: " + run.gaps);
  return facts;
}

std::string factsText(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += fmt::format("  {:<12}{}\n", name, oneLine(value));
  return text;
}

Expected<Json> reportJson(const ReportSource& source) {
  const TaskProgram& program = source.program.tables();
  Run run;
  if (source.hasRun()) run = analyseRun(source);
  if (run.spans.size() > kMaxSpans || run.tracks.size() > kMaxTracks)
    return Error{
        fmt::format("{}: found {} spans of {} workers, expected at most {} of {} on a page; --format text "
                    "has no limit",
                    source.file, run.spans.size(), run.tracks.size(), kMaxSpans, kMaxTracks)};
  Json facts = Json::array(), tables = Json::array(), events = Json::array(), entries = Json::array();
  const auto addFacts = [&](const Facts& some) {
    for (const auto& [name, value] : some) facts.push_back({name, value});
  };
  addFacts(programFacts(source));
  if (source.hasRun()) addFacts(runFacts(source, run));
  if (source.hasRun())
    for (const ReportTable& table : runTables(source, run)) tables.push_back(tableJson(table));
  for (const ReportTable& table : programTables(program)) tables.push_back(tableJson(table));
  for (const EventArray& event : program.events) events.push_back(text::nameInEntry(program, event));
  for (const Entry& entry : program.entries) entries.push_back(entry.name);
  Json report = {{"title", program.name}, {"file", source.file}, {"hasRun", source.hasRun()}};
  report["facts"] = std::move(facts);
  report["tables"] = std::move(tables);
  report["families"] = familiesJson(program);
  report["events"] = std::move(events);
  report["entries"] = std::move(entries);
  report["memory"] = memoryJson(source);
  report["graphs"] = graphsJson(program);
  report["hang"] = source.hasRun() ? hangJson(source) : nullptr;
  if (source.hasRun()) addRunJson(source, run, report);
  return report;
}

}  // namespace

Expected<std::string> reportHtml(const std::vector<ReportSource>& sources) {
  const std::string_view page = pageTemplate();
  constexpr std::string_view kPlace = "\n@DATA@\n";
  const size_t at = page.find(kPlace);
  if (at == page.npos)
    return Error{
        "--format html: this build of sluice has no page, because esbuild or node-d3 was not installed; "
        "install both "
        "(apt-get install esbuild node-d3) and build it again, or use --format text"};
  Json reports = Json::array();
  for (const ReportSource& source : sources) {
    Expected<Json> report = reportJson(source);
    if (!report) return report.error();
    reports.push_back(std::move(*report));
  }
  const std::string data =
      Json{{"reports", std::move(reports)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text(page.substr(0, at));
  text.reserve(page.size() + data.size() + 100);
  text += "\n<script type=\"application/json\" id=\"report-data\">";
  for (const char c : data) c == '<' ? text += "\\u003c" : text += c;  // no text of the data ends the element
  text += "</script>\n";
  return text += page.substr(at + kPlace.size());
}

std::string runText(const ReportSource& source) {
  const Run run = analyseRun(source);
  std::string text = factsText(runFacts(source, run));
  if (const auto hang = findHang(source)) {
    text += "\n";
    for (const std::string& message : hang->messages) text += messageLines(message) + "\n";
  }
  for (const ReportTable& table : runTables(source, run)) text += "\n" + tableText(table, kTextRows);
  return text;
}

std::string reportText(const std::vector<ReportSource>& sources) {
  std::string text;
  for (const ReportSource& source : sources) {
    const TaskProgram& program = source.program.tables();
    text += fmt::format("{}{}: {}\n", text.empty() ? "" : "\n", oneLine(source.file), oneLine(program.name));
    text += factsText(programFacts(source));
    if (source.hasRun())
      text += runText(source);
    else
      for (const ReportTable& table : programTables(program)) text += "\n" + tableText(table, SIZE_MAX);
  }
  return text;
}

}  // namespace sluice::tools
