#include "tools/cli/run_overlap.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "tools/overlap/overlap_report.h"

namespace sluice::tools {

Expected<std::vector<EntryOverlap>> measureOverlap(const Job& job, Transport& transport, Context& context,
                                                   const TensorMap& inputs, int64_t tokens) {
  const TaskProgram& program = job.program.tables();
  // what the usual runs made is kept
  TensorMap spare = makeOutputs(program, transport.rank(), job.tensors.outputs, tokens);
  copyStarts(program, inputs, spare);
  for (auto& [name, tensor] : spare)
    if (Status bound = context.bind(name, {tensor.type(), tensor.shape(), tensor.data()}); !bound)
      return bound.error();
  auto probe = OverlapProbe::create(transport, job.options.timeoutSeconds);
  if (!probe) return probe.error();
  std::vector<std::string> entries;
  std::vector<EntryOverlap> result;
  for (EntryId entry : job.entries) {
    entries.push_back(program.at(entry).name);
    result.push_back({entries.back(), {}});
  }
  for (int repetition = 0; repetition <= job.repeat; ++repetition) {
    const auto samples = probe->repeat(context, entries);
    if (!samples) return samples.error();
    if (repetition == 0) continue;
    for (size_t i = 0; i < entries.size(); ++i) result[i].samples.push_back((*samples)[i]);
  }
  return result;
}

std::string overlapText(const std::vector<EntryOverlap>& overlap) {
  std::string text = fmt::format("\n{:<12}{}\n", "overlap", overlapHeads());
  for (const EntryOverlap& entry : overlap)
    text += fmt::format("{:<12}{}\n", entry.entry, overlapLine(entry));
  return text +
         "T: a step; Tcomm, Tcompute: with communication or computation alone; medians of the slowest rank.\n"
         "Overlap is the larger part over T. Orders are the pieces of rows and signals to other ranks; "
         "puts,\n"
         "signals, messages and flushes are what the transport counted. Messages are puts, and signals that\n"
         "went out together.\n";
}

Expected<PendingFile> stageOverlap(const Job& job, const std::vector<EntryOverlap>& overlap) {
  Expected<PendingFile> file = PendingFile::create(job.overlapJson);
  if (!file) return file.error();
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (const EntryOverlap& entry : overlap) entries.push_back(overlapJson(entry));
  const std::string text = nlohmann::ordered_json{{"overlap", std::move(entries)}}.dump(2) + "\n";
  if (Status status = file->write(std::as_bytes(std::span(text))); !status) return status.error();
  if (Status status = file->finish(); !status) return status.error();
  return file;
}

}  // namespace sluice::tools
