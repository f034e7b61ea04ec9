#include "tools/gpu_check/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/api/context.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/threads.h"
#include "runtime/gpu/edited_backend.h"
#include "runtime/gpu/gpu_device.h"
#include "tools/cli/run_job.h"
#include "tools/evaluate/values.h"

namespace sluice::tools {
namespace {

// An output may differ from the output of CPU threads by this much. The error of CPU threads against double
// precision is smaller.
constexpr double kTolerance = 1.2e-2;

// A program and its inputs, which are the same in every run.
class Subject {
 public:
  static Expected<Subject> load(const CheckPlan& plan, const std::string& file) {
    Expected<Job> job = makeJob({.program = file,
                                 .seed = 1,
                                 .tokens = plan.tokens,
                                 .routing = "zipf:1.1",
                                 .timeout = plan.timeoutSeconds});
    if (!job) return job.error();
    return Subject(std::move(*job));
  }

  int ranks() const { return job_.program.ranks(); }

  // All ranks, after `repeat` runs of all entries. A null maker: CPU threads.
  Expected<std::vector<Rank>> run(DeviceMaker device, int repeat = 1) {
    job_.options.device = std::move(device);
    job_.repeat = repeat;
    LocalRanks transports(ranks());
    std::vector<Rank> all(static_cast<size_t>(ranks()));
    std::vector<Status> statuses(all.size());
    const Status started = runTogether(ranks(), "the ranks", [&](int number) {
      const auto r = static_cast<size_t>(number);
      statuses[r] = runOne(number, transports.transport(number), all[r]);
    });
    if (!started) return started.error();
    for (const Status& each : statuses)
      if (!each) return each.error();
    return all;
  }

  const Job& job() const { return job_; }
  void setTimeout(double seconds) { job_.options.timeoutSeconds = seconds; }

 private:
  Status runOne(int number, Transport& transport, Rank& rank) const {
    Expected<Rank> loaded = loadRank(job_, number);
    if (!loaded) {
      transport.abort(loaded.error().message);
      return loaded.error();
    }
    rank = std::move(*loaded);
    return runRank(job_, transport, rank);
  }

  explicit Subject(Job job) : job_(std::move(job)) {}

  Job job_;
};

uint64_t hashContent(const std::vector<Rank>& ranks) {
  std::vector<uint64_t> hashes;
  for (const Rank& rank : ranks)
    for (const auto& [name, tensor] : rank.outputs)
      hashes.push_back(sluice::hashContent(std::span(tensor.data(), static_cast<size_t>(tensor.bytes()))));
  return sluice::hashContent(std::span<const uint64_t>(hashes));
}

struct Worst {
  std::string name;
  double error = 0;
};

Worst findWorst(const std::vector<Rank>& found, const std::vector<Rank>& expected) {
  Worst worst;
  for (const auto& [name, tensor] : expected.front().outputs) {
    std::vector<Values> values;
    for (const auto* all : {&found, &expected})
      for (const Rank& rank : *all) values.push_back(toValues(rank.outputs.at(name)));
    std::vector<const Values*> ours, theirs;
    for (size_t i = 0; i < values.size(); ++i) (i < found.size() ? ours : theirs).push_back(&values[i]);
    const double error = relativeError(ours, theirs);
    if (!(error <= worst.error)) worst = {name, error};
  }
  return worst;
}

// Runs the checks of one program.
class ProgramChecks {
 public:
  ProgramChecks(const CheckPlan& plan, const BackendsOf& backends, const std::string& file, Subject subject,
                const ReportResult& report)
      : plan_(plan), backends_(backends), file_(file), subject_(std::move(subject)), report_(report) {}

  bool run() {
    return check("results of CPU threads", &ProgramChecks::compareWithCpu) &
           check("same bits for any number of blocks", &ProgramChecks::compareBlocks) &
           check("same bits in every run", &ProgramChecks::compareRuns) &
           check("report of a lost signal", &ProgramChecks::loseOne) &
           check("times", &ProgramChecks::measure);
  }

 private:
  // Text of the result, or what is wrong.
  using Check = Expected<std::string> (ProgramChecks::*)();

  bool check(const char* name, Check body) {
    const int64_t begin = monotonicNanoseconds();
    const Expected<std::string> text = (this->*body)();
    const double seconds = static_cast<double>(monotonicNanoseconds() - begin) * 1e-9;
    report_({fmt::format("{}: {}", file_, name), text.ok(), text ? *text : text.error().message, seconds});
    return text.ok();
  }

  Expected<DeviceMaker> device(int blocks) {
    auto made = backends_(subject_.ranks(), blocks);
    if (!made) return made.error();
    return devicesOn(std::move(*made));
  }
  Expected<std::vector<Rank>> runOn(int blocks, int repeat = 1) {
    auto made = device(blocks);
    if (!made) return made.error();
    return subject_.run(std::move(*made), repeat);
  }

  Expected<std::string> compareWithCpu() {
    const auto found = runOn(0);  // first: without a GPU, the reference would take minutes for nothing
    if (!found) return found.error();
    const auto expected = subject_.run({});
    if (!expected) return expected.error();
    const Worst worst = findWorst(*found, *expected);
    const std::string text = fmt::format("'{}' differs most, by {:.2e} of it", worst.name, worst.error);
    if (!(worst.error <= kTolerance)) return Error{fmt::format("{}, expected at most {}", text, kTolerance)};
    hash_ = hashContent(*found);
    return text;
  }

  Expected<std::string> compareBlocks() {
    for (const int blocks : plan_.blocks) {
      const auto found = runOn(blocks);
      if (!found) return Error{fmt::format("{} blocks: {}", blocks, found.error().message)};
      if (hashContent(*found) != hash_) return Error{fmt::format("{} blocks give other bits", blocks)};
    }
    return fmt::format("{} blocks of a rank", fmt::join(plan_.blocks, ", "));
  }

  Expected<std::string> compareRuns() {
    auto made = device(0);
    if (!made) return made.error();
    for (int run = 0; run < plan_.runs; ++run) {
      const auto found = subject_.run(*made);
      if (!found) return Error{fmt::format("run {}: {}", run + 1, found.error().message)};
      if (hashContent(*found) != hash_) return Error{fmt::format("run {} gives other bits", run + 1)};
    }
    return fmt::format("{} runs, hash {:016x}", plan_.runs, hash_);
  }

  Expected<std::string> loseOne() {
    auto made = backends_(subject_.ranks(), 0);
    if (!made) return made.error();
    subject_.setTimeout(plan_.lostSeconds);
    const auto found = subject_.run(devicesOn(editedBackends(std::move(*made), [](StepTables& tables) {
      if (tables.rank == 0) loseSignal(tables);
    })));
    subject_.setTimeout(plan_.timeoutSeconds);
    if (found) return Error{"the step ended, expected a report"};
    const std::string& text = found.error().message;
    if (text.find("for event ") == std::string::npos || text.find("missing: ") == std::string::npos)
      return Error{fmt::format("the report has no event, or not what is missing: {}", text)};
    return text;
  }

  Expected<std::string> measure() {
    const auto found = runOn(0, plan_.timedRuns);
    if (!found) return found.error();
    const size_t entries = subject_.job().entries.size();
    std::string text;
    for (size_t e = 0; e < entries; ++e) {
      // a step takes as long as at the slowest rank
      double best = INFINITY;
      for (size_t run = e; run < found->front().figures.stats.size(); run += entries) {
        double slowest = 0;
        for (const Rank& rank : *found) slowest = std::max(slowest, rank.figures.stats[run].runSeconds);
        best = std::min(best, slowest);
      }
      double flops = 0;
      const TaskProgram& program = subject_.job().program.tables();
      for (const Rank& rank : *found)
        flops +=
            countFlops(program, subject_.job().entries[e], rank.figures.stats[e].rows, rank.figures.tokens);
      text += fmt::format("{}{} {:.3f} ms, {:.2f} TFLOP/s", text.empty() ? "" : "; ",
                          program.at(subject_.job().entries[e]).name, best * 1e3, flops / best * 1e-12);
    }
    return text;
  }

  const CheckPlan& plan_;
  const BackendsOf& backends_;
  const std::string file_;
  Subject subject_;
  const ReportResult& report_;
  uint64_t hash_ = 0;
};

}  // namespace

bool runChecks(const CheckPlan& plan, const BackendsOf& backends, const ReportResult& report) {
  bool passed = true;
  for (const std::string& file : plan.programs) {
    Expected<Subject> subject = Subject::load(plan, file);
    if (subject) {
      passed &= ProgramChecks(plan, backends, file, std::move(*subject), report).run();
      continue;
    }
    passed = false;
    report({file, false, subject.error().message, 0});
  }
  return passed;
}

}  // namespace sluice::tools
