#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/api/make_transport.h"
#include "runtime/base/clock.h"
#include "runtime/base/threads.h"
#include "tools/cli/command.h"
#include "tools/cli/files.h"
#include "tools/cli/run_job.h"
#include "tools/command_line.h"
#include "tools/launch/rank_gather.h"
#include "tools/overlap/overlap_report.h"
#include "tools/report/report.h"
#include "tools/trace/steps.h"

namespace sluice::tools {
namespace {

// Files take longer than events: ranks wait this multiple of the limit of an event for each other's files.
constexpr double kFileWaits = 10;
constexpr int64_t kSlowestFile = 3'000'000'000;  // ns, for traces of a step that failed

std::string entryNames(const Job& job) {
  std::string names;
  for (EntryId entry : job.entries)
    names += (names.empty() ? "" : ", ") + job.program.tables().at(entry).name;
  return names;
}

// Settings that must be the same at all ranks, in the words of an error message.
std::array<std::string, 4> listSettings(const Job& job) {
  return {"entries " + entryNames(job), fmt::format("{} repetitions", job.repeat),
          job.trace.empty() ? "without a trace" : "with a trace",
          job.overlap ? "with --overlap" : "without --overlap"};
}

// One rank of a run: its data, and what it knows of the others.
class RankRun {
 public:
  RankRun(const Expected<Job>& job, Transport& transport, RankGather gather)
      : job_(job), transport_(transport), gather_(std::move(gather)) {}

  Expected<int> run();

 private:
  bool isFirst() const { return transport_.rank() == 0; }
  Status prepare();
  Expected<std::optional<RankFailure>> compareSettings();
  template <class T>
  Status gatherAtFirst(const char* what, const std::string& own, Expected<T> (*decode)(std::string_view),
                       std::vector<T>& all);
  Status runSteps();
  void awaitHangFiles() const;
  Status gatherTraces();
  Status stage();
  Status stageText(const std::string& path, std::string_view text);
  Expected<std::optional<RankFailure>> runAll();
  Expected<int> fail(const RankFailure& failure);
  Expected<int> endAlone(const Error& error) const;

  const Expected<Job>& job_;
  Transport& transport_;
  RankGather gather_;
  Rank rank_;
  std::vector<PendingFile> files_;    // complete except for their names
  std::vector<RankFigures> figures_;  // this and the next only at rank 0
  std::vector<Trace> traces_;
};

Status RankRun::prepare() {
  if (!job_) return job_.error();
  const int rank = transport_.rank();
  if (transport_.size() != job_->program.ranks())
    return Error{fmt::format("found {} ranks, expected {}, for which the program was compiled",
                             transport_.size(), job_->program.ranks())};
  // before any time is spent on the outputs
  std::vector<std::string> paths;
  if (!job_->out.empty()) paths.push_back(job_->out[static_cast<size_t>(rank)]);
  if (isFirst() && !job_->trace.empty()) paths.push_back(job_->trace);
  if (isFirst() && !job_->overlapJson.empty()) paths.push_back(job_->overlapJson);
  if (!job_->onHang.empty()) {
    paths.push_back(job_->onHang[static_cast<size_t>(rank)]);
    ::unlink(paths.back().c_str());  // of an earlier run
  }
  if (Status status = probeWritable(paths); !status) return status;
  Expected<Rank> loaded = loadRank(*job_, rank);
  if (!loaded) return loaded.error();
  rank_ = std::move(*loaded);
  return {};
}

Expected<std::optional<RankFailure>> RankRun::compareSettings() {
  for (const std::string& own : listSettings(*job_)) {
    const auto all = gather_.gather(own, {"the settings", "before the first step"});
    if (!all) return all.error();
    for (size_t rank = 1; rank < all->size(); ++rank)
      if ((*all)[rank] != (*all)[0])
        return std::optional<RankFailure>(
            {static_cast<int>(rank),
             fmt::format("rank {} runs {}, but rank 0 runs {}", rank, (*all)[rank], (*all)[0])});
  }
  return std::optional<RankFailure>();
}

template <class T>
Status RankRun::gatherAtFirst(const char* what, const std::string& own,
                              Expected<T> (*decode)(std::string_view), std::vector<T>& all) {
  const auto gathered = gather_.gather(own, {what, "after the last step"}, 0);
  if (!gathered) return gathered.error();
  for (const std::string& bytes : *gathered) {
    if (!isFirst()) break;
    Expected<T> one = decode(bytes);
    if (!one) return one.error();
    all.push_back(std::move(*one));
  }
  return {};
}

Status RankRun::runSteps() {
  if (Status status = runRank(*job_, transport_, rank_); !status) {
    transport_.abort(status.error().message);
    awaitHangFiles();
    return status;
  }
  if (Status all = gatherAtFirst("the figures", encodeFigures(rank_.figures), decodeFigures, figures_); !all)
    return all;
  return job_->trace.empty() ? Status{} : gatherTraces();
}

// mpirun ends all ranks as soon as one has ended: each waits for the files that the others write.
void RankRun::awaitHangFiles() const {
  if (transport_.kind() != "mpi") return;
  const int64_t end = monotonicNanoseconds() + kSlowestFile;
  const auto isThere = [](const std::string& each) { return ::access(each.c_str(), F_OK) == 0; };
  while (monotonicNanoseconds() < end && !std::ranges::all_of(job_->onHang, isThere))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Clocks of different machines are unrelated, so times count from the moment at which all ranks have just
// met, which is the same for all up to the latency of a message.
Status RankRun::gatherTraces() {
  if (const int64_t now = monotonicNanoseconds(); transport_.localRanks() < transport_.size()) {
    for (TraceSpan& span : rank_.trace.spans) {
      span.begin -= now;
      span.end -= now;
    }
  }
  return gatherAtFirst("the trace", encodeTrace(rank_.trace), decodeTrace, traces_);
}

Status RankRun::stageText(const std::string& path, std::string_view text) {
  Expected<PendingFile> file = PendingFile::create(path);
  if (!file) return file.error();
  if (Status status = file->write(std::as_bytes(std::span(text))); !status) return status;
  if (Status status = file->finish(); !status) return status;
  files_.push_back(std::move(*file));
  return {};
}

Status RankRun::stage() {
  if (!job_->out.empty()) {
    const std::string& path = job_->out[static_cast<size_t>(transport_.rank())];
    Expected<PendingFile> outputs = stageSafetensors(path, tensorRefs(rank_.outputs));
    if (!outputs) return outputs.error();
    files_.push_back(std::move(*outputs));
  }
  if (!isFirst()) return {};
  if (!job_->trace.empty())
    if (Status status =
            stageText(job_->trace, chromeTraceWithArrows(Plan::make(job_->program.verified()), traces_));
        !status)
      return status;
  if (job_->overlapJson.empty()) return {};
  nlohmann::ordered_json entries = nlohmann::ordered_json::array();
  for (const EntryOverlap& entry : rank_.overlap) entries.push_back(overlapJson(entry));
  return stageText(job_->overlapJson, nlohmann::ordered_json{{"overlap", std::move(entries)}}.dump(2) + "\n");
}

// mpirun ends all ranks as soon as one has failed. So the rank with the error prints it, and the others end
// only after that. Ranks that a user started separately may each have their own standard error.
Expected<int> RankRun::fail(const RankFailure& failure) {
  if (transport_.kind() != "mpi") return Error{failure.message};
  if (failure.rank == transport_.rank())
    printError(fmt::format("sluice: error: {}\n", printable(failure.message)));
  const auto said = gather_.gather("", {"the end", "after an error"});
  return said ? Expected<int>(kExitFailure) : said.error();
}

// The end of MPI waits for all ranks and, where one of them is stopped or dead, ends the process: what was
// wrong is printed before.
Expected<int> RankRun::endAlone(const Error& error) const {
  if (transport_.kind() != "mpi") return error;
  printError(fmt::format("sluice: error: {}\n", printable(error.message)));
  return kExitFailure;
}

// Errors: those after which no rank can reach the others.
Expected<std::optional<RankFailure>> RankRun::runAll() {
  auto failure = gather_.agree(prepare(), {"the inputs", "before the first step"});
  if (!failure || *failure) return failure;
  failure = compareSettings();
  if (!failure || *failure) return failure;
  if (Status done = runSteps(); !done) return done.error();
  failure = gather_.agree(stage(), {"the outputs", "after the last step"});
  if (!failure || *failure) return failure;
  return gather_.agree(commitAll(files_), {"the end", "after the outputs were there"});
}

Expected<int> RankRun::run() {
  const auto failure = runAll();
  if (!failure) return endAlone(failure.error());
  if (*failure) return fail(**failure);
  if (!isFirst()) return kExitSuccess;
  std::string text = reportRun(*job_, figures_, transport_.kind() != "threads");
  if (!job_->trace.empty()) text += "\n" + runText({job_->trace, job_->program, 0, std::move(traces_)});
  if (job_->overlap) text += overlapText(rank_.overlap);
  return succeededIf(printText(text));
}

}  // namespace

Expected<int> runAsRank(const Expected<Job>& job, double timeoutSeconds, Transport& transport) {
  // the others must get the error instead of waiting for a rank that is gone
  try {
    Expected<RankGather> gather = RankGather::create(transport, kFileWaits * timeoutSeconds);
    if (!gather) {
      transport.abort(gather.error().message);
      return gather.error();
    }
    return RankRun(job, transport, std::move(*gather)).run();
  } catch (const std::bad_alloc&) {
    const char* const message = "out of memory";  // short enough to need no memory
    transport.abort(message);
    return Error{message};
  } catch (const std::exception& error) {
    const std::string message = fmt::format("rank {}: {}", transport.rank(), error.what());
    transport.abort(message);
    return Error{message};
  }
}

Expected<int> runThreads(const Job& job) {
  if (Status fits = checkMemory(job); !fits) return fits.error();
  const int ranks = job.program.ranks();
  const auto transports = makeTransports({.size = ranks});
  if (!transports) return transports.error();
  std::vector<Expected<int>> results(static_cast<size_t>(ranks), kExitSuccess);
  const Expected<Job> same = job;
  const Status started = runTogether(ranks, "the ranks", [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    results[r] = runAsRank(same, job.options.timeoutSeconds, *(*transports)[r]);
  });
  if (!started) return started.error();
  const auto failed = std::find_if(results.begin(), results.end(), [](const auto& each) { return !each; });
  if (failed == results.end()) return kExitSuccess;
  // errors that follow from the first have less information
  const Transport& first = *transports->front();
  if (!first.isAborted()) return failed->error();
  const std::string message = first.abortMessage();
  // a rank's message may end with the file that it has written
  for (const auto& each : results)
    if (!each && each.error().message.starts_with(message)) return each.error();
  return Error{message};
}

}  // namespace sluice::tools
