#include "tools/cli/run_outputs.h"

#include "runtime/trace/chrome_trace.h"
#include "tools/cli/files.h"

namespace sluice::tools {

Status probeOutputs(const Job& job, int first, int last, bool trace) {
  std::vector<std::string> paths;
  if (!job.out.empty()) paths.assign(job.out.begin() + first, job.out.begin() + last);
  if (trace && !job.trace.empty()) paths.push_back(job.trace);
  if (trace && !job.overlapJson.empty()) paths.push_back(job.overlapJson);
  return probeWritable(paths);
}

Expected<PendingFile> stageOutputs(const Job& job, int rank, const TensorMap& outputs) {
  return stageSafetensors(job.out[static_cast<size_t>(rank)], tensorRefs(outputs));
}

Expected<PendingFile> stageTrace(const Job& job, const std::vector<Trace>& ranks) {
  Expected<PendingFile> file = PendingFile::create(job.trace);
  if (!file) return file;
  const std::string text = chromeTrace(job.program.tables(), ranks);
  if (Status status = file->write(std::as_bytes(std::span(text))); !status) return status.error();
  if (Status status = file->finish(); !status) return status.error();
  return file;
}

Status commitAll(std::vector<PendingFile>& files) {
  for (PendingFile& file : files)
    if (Status status = file.commit(); !status) return status;
  return {};
}

}  // namespace sluice::tools
