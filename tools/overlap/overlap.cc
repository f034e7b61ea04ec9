#include "tools/overlap/overlap.h"

#include <sys/resource.h>

#include <algorithm>

#include "runtime/base/clock.h"

namespace sluice::tools {
namespace {

// The resources that this process has used so far.
struct Usage {
  double cpu = 0;
  int64_t switches = 0;
};

Usage usageNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {secondsNow(CLOCK_PROCESS_CPUTIME_ID), int64_t{usage.ru_nvcsw} + int64_t{usage.ru_nivcsw}};
}

}  // namespace

// The figures of one rank; also the layout of a block.
struct OverlapProbe::Sample {
  double wall = 0;
  Usage usage;  // of the process, reported by one of its ranks
  int64_t rows = 0;
  Traffic traffic;
  CommStats stats;
};

OverlapFigures computeFigures(const EntryOverlap& overlap, int cpuUnits) {
  const auto takeMedian = [&](const auto& value) {
    std::vector<double> values;
    for (const EntrySample& sample : overlap.samples) values.push_back(static_cast<double>(value(sample)));
    return computeMedian(std::move(values));
  };
  const auto medianSeconds = [&](WorkKind work) {
    const auto i = static_cast<size_t>(work);
    return takeMedian([&](const EntrySample& s) { return cpuUnits > 0 ? s.cpu[i] / cpuUnits : s.wall[i]; });
  };
  OverlapFigures f;
  f.all = medianSeconds(WorkKind::kAll);
  f.communication = medianSeconds(WorkKind::kCommunication);
  f.compute = medianSeconds(WorkKind::kCompute);
  f.efficiency = f.all > 0 ? std::max(f.communication, f.compute) / f.all : 0;
  f.cpu = takeMedian([](const EntrySample& s) { return s.cpu[0]; });
  f.switches = takeMedian([](const EntrySample& s) { return s.switches[0]; });
  f.puts = takeMedian([](const EntrySample& s) { return s.stats.puts; });
  f.signals = takeMedian([](const EntrySample& s) { return s.stats.signals; });
  f.flushes = takeMedian([](const EntrySample& s) { return s.stats.flushes; });
  f.messages = takeMedian([](const EntrySample& s) { return s.stats.messages; });
  return f;
}

Expected<OverlapProbe> OverlapProbe::create(Transport& transport, double timeoutSeconds) {
  OverlapProbe probe;
  probe.transport_ = &transport;
  probe.timeoutSeconds_ = timeoutSeconds;
  auto samples = AllGather::create(transport, sizeof(Sample));
  if (!samples) return samples.error();
  probe.samples_ = std::move(*samples);
  return probe;
}

Status OverlapProbe::meet(const Sample& sample) {
  return samples_.gather(std::as_bytes(std::span(&sample, 1)), {"the figures", "of its run"},
                         timeoutSeconds_);
}

// All ranks start together, and none continues before all have ended.
Status OverlapProbe::measure(Context& context, const std::string& entry, WorkKind work, Sample& sample) {
  context.setWork(work);
  const Usage before = usageNow();
  if (Status ready = meet({}); !ready) return ready;
  const CommStats sent = transport_->stats();
  if (Status ran = context.run(entry); !ran) return ran;
  const CommStats now = transport_->stats();
  if (Status ended = meet({}); !ended) return ended;
  const Usage after = usageNow();
  // ranks that are threads share a process
  if (transport_->rank() == 0 || transport_->kind() != "threads")
    sample.usage = {after.cpu - before.cpu, after.switches - before.switches};
  sample.wall = context.lastRun().runSeconds;
  sample.rows = context.lastRun().rows;
  sample.traffic = context.traffic();
  sample.stats = {now.puts - sent.puts, now.putBytes - sent.putBytes, now.signals - sent.signals,
                  now.flushes - sent.flushes, now.messages - sent.messages};
  return {};
}

void OverlapProbe::collect(WorkKind work, EntrySample& all) const {
  const auto i = static_cast<size_t>(work);
  for (int rank = 0; rank < transport_->size(); ++rank) {
    const auto& one = *reinterpret_cast<const Sample*>(samples_.of(rank));
    all.wall[i] = std::max(all.wall[i], one.wall);
    all.cpu[i] += one.usage.cpu;
    all.switches[i] += one.usage.switches;
    if (work != WorkKind::kAll) continue;
    all.rows += one.rows;
    all.traffic.pieces += one.traffic.pieces;
    all.traffic.bytes += one.traffic.bytes;
    all.traffic.signals += one.traffic.signals;
    all.stats.puts += one.stats.puts;
    all.stats.putBytes += one.stats.putBytes;
    all.stats.signals += one.stats.signals;
    all.stats.flushes += one.stats.flushes;
    all.stats.messages += one.stats.messages;
  }
}

Expected<std::vector<EntrySample>> OverlapProbe::repeat(Context& context,
                                                        const std::vector<std::string>& entries) {
  std::vector<EntrySample> result(entries.size());
  // an entry finds the tensors that the entry before it saved with the same work
  for (WorkKind work : {WorkKind::kAll, WorkKind::kCommunication, WorkKind::kCompute}) {
    for (size_t i = 0; i < entries.size(); ++i) {
      Sample own;
      if (Status done = measure(context, entries[i], work, own); !done) return done.error();
      if (Status all = meet(own); !all) return all.error();
      collect(work, result[i]);
    }
  }
  context.setWork(WorkKind::kAll);
  return result;
}

}  // namespace sluice::tools
