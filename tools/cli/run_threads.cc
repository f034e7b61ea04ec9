#include "tools/cli/run_threads.h"

#include <mutex>
#include <utility>

#include "runtime/api/make_transport.h"
#include "runtime/base/threads.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_memory.h"
#include "tools/cli/run_outputs.h"
#include "tools/cli/run_overlap.h"
#include "tools/cli/run_report.h"
#include "tools/trace/summary.h"

namespace sluice::tools {
namespace {

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

Expected<std::vector<Rank>> loadAll(const Job& job) {
  std::vector<Rank> ranks;
  for (int number = 0; number < job.program.ranks(); ++number) {
    Expected<Rank> rank = loadRank(job, number);
    if (!rank) return rank.error();
    ranks.push_back(std::move(*rank));
  }
  return ranks;
}

Status runAll(const Job& job, std::vector<Rank>& ranks) {
  const auto transports = makeTransports({.size = job.program.ranks()});
  if (!transports) return transports.error();
  FirstError first;
  const Status started = runTogether(job.program.ranks(), "the ranks", [&](int rank) {
    Transport& transport = *(*transports)[static_cast<size_t>(rank)];
    const Status status = runRank(job, transport, ranks[static_cast<size_t>(rank)]);
    if (status) return;
    first.set(status.error());
    // The others must not wait for a rank that is gone.
    transport.abort(status.error().message);
  });
  return started ? first.status() : started;
}

}  // namespace

Expected<int> runThreads(const Job& job) {
  if (Status fits = checkMemory(job); !fits) return fits.error();
  if (Status status = probeOutputs(job, 0, job.program.ranks(), true); !status) return status.error();
  Expected<std::vector<Rank>> ranks = loadAll(job);
  if (!ranks) return ranks.error();
  if (Status status = runAll(job, *ranks); !status) return status.error();

  std::vector<PendingFile> files;
  std::vector<RankFigures> figures;
  std::vector<Trace> traces;
  for (Rank& rank : *ranks) {
    if (!job.out.empty()) {
      Expected<PendingFile> file = stageOutputs(job, static_cast<int>(files.size()), rank.outputs);
      if (!file) return file.error();
      files.push_back(std::move(*file));
    }
    figures.push_back(std::move(rank.figures));
    traces.push_back(std::move(rank.trace));
  }
  if (!job.trace.empty()) {
    Expected<PendingFile> file = stageTrace(job, traces);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  if (!job.overlapJson.empty()) {
    Expected<PendingFile> file = stageOverlap(job, ranks->front().overlap);
    if (!file) return file.error();
    files.push_back(std::move(*file));
  }
  if (Status status = commitAll(files); !status) return status.error();
  std::string text = reportRun(job, figures, false);
  if (!job.trace.empty()) text += "\n" + traceSummary(job.program.tables(), traces);
  if (job.overlap) text += overlapText(ranks->front().overlap);
  if (Status status = printText(text); !status) return status.error();
  return kExitSuccess;
}

}  // namespace sluice::tools
