// sluice report: where the time of a step went, or what a program is, as a page, a picture or text.
#include "tools/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "tools/cli/command.h"
#include "tools/cli/files.h"

namespace sluice::tools {
namespace {

struct ReportOptions {
  std::vector<std::string> inputs;
  std::vector<std::string> programs;
  std::string output, format = "html";
};

Expected<int> report(const ReportOptions& options) {
  if (!options.programs.empty() && std::ranges::none_of(options.inputs, isTrace))
    return Error{"--program: found no trace, expected one"};
  std::vector<ReportSource> sources;
  for (const std::string& path : options.inputs) {
    Expected<ReportSource> source = readSource(path, options.programs);
    if (!source) return source.error();
    sources.push_back(std::move(*source));
  }
  if (options.format == "text" && options.output.empty()) return succeededIf(printText(reportText(sources)));
  if (options.format == "svg" && sources.size() > 1)
    return Error{fmt::format("--format svg: found {} inputs, expected 1", sources.size())};
  const std::string output = options.output.empty() ? "report." + options.format : options.output;
  if (Status writable = probeWritable({output}); !writable) return writable.error();
  const Expected<std::string> text = options.format == "text"  ? reportText(sources)
                                     : options.format == "svg" ? reportSvg(sources.front())
                                                               : reportHtml(sources);
  if (!text) return text.error();
  return succeededIf(writeText(output, *text));
}

}  // namespace

Command addReport(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("report", "show where the time of a step went, or what a program is");
  const auto options = std::make_shared<ReportOptions>();
  app->add_option(
         "input", options->inputs,
         "a trace, or a program file; two are shown side by side. {rank} in the path of a trace stands "
         "for the files of all ranks")
      ->required()
      ->expected(1, 2)
      ->type_name("trace.json|layer.slp");
  app->add_option("-o,--output", options->output,
                  "file to write (default: report.html or report.svg; text goes to standard output)")
      ->type_name("FILE");
  app->add_option(
         "--format", options->format,
         "html (default), one page for a browser that needs no network; svg, a picture of a run; or text")
      ->check(CLI::IsMember({"html", "svg", "text"}))
      ->type_name("FORMAT");
  app->add_option(
         "--program", options->programs,
         "which program of a trace that has several: its number from 0, or its file; if repeated, the "
         "first that is there")
      ->allow_extra_args(false)
      ->type_name("N|layer.slp");
  app->footer(
      R"(Traces are written by `sluice run --trace`, `sluice run --on-hang=trace`, `sluice simulate --trace` and
sluice_torch.trace(). docs/REPORT.md explains what the page shows.

examples:
  sluice report trace.json -o report.html
  sluice report before.json after.json -o both.html
  sluice report layer.slp -o layer.html
  sluice report trace.json --format svg -o timeline.svg
  sluice report trace.json --format text
  sluice report 'hang-{rank}.json' -o hang.html

exit status: 0 written, 1 bad input or a file that cannot be written, 2 wrong usage)");
  return {app, [options] { return report(*options); }};
}

}  // namespace sluice::tools
