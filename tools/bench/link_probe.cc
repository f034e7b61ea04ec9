#include "tools/bench/link_probe.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/api/make_transport.h"
#include "runtime/base/child_process.h"
#include "runtime/base/clock.h"
#include "runtime/base/threads.h"
#include "runtime/comm/all_gather.h"

namespace sluice::tools {
namespace {

constexpr size_t kSmallest = 1 << 10, kLargest = 16 << 20;
constexpr size_t kBatchBytes = 4 << 20;  // minimum that is put between two readings of the clock
constexpr int kBatches = 15;
constexpr int kTrips = 100;                  // per batch
constexpr int64_t kTripsTime = 500'000'000;  // ns: batches are repeated for this long
constexpr uint64_t kStop = uint64_t{1} << 32;
constexpr double kTimeout = 60;

// Binds the calling thread until it ends.
void takeUnit(int number) {
  cpu_set_t allowed, own;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  CPU_ZERO(&own);
  for (int unit = 0; unit < CPU_SETSIZE; ++unit)
    if (CPU_ISSET(unit, &allowed) && number-- == 0) CPU_SET(unit, &own);
  sched_setaffinity(0, sizeof(own), &own);
}

class LinkProbe {
 public:
  static Expected<LinkProbe> create(Transport& transport) {
    if (transport.size() != 2)
      return Error{fmt::format("a link is between 2 ranks, found {}", transport.size())};
    LinkProbe probe(transport);
    const auto memory = transport.allocate(kLargest);
    if (!memory) return memory.error();
    const auto counter = transport.allocate(64);
    if (!counter) return counter.error();
    auto meeting = AllGather::create(transport, 1);
    if (!meeting) return meeting.error();
    probe.memory_ = *memory;
    probe.counter_ = *counter;
    probe.meeting_ = std::move(*meeting);
    return probe;
  }

  Expected<LinkFigures> run() {
    LinkFigures figures;
    std::memset(transport_.local(memory_), 1, kLargest);
    if (Status ready = meet(); !ready) return ready.error();
    if (isFirst()) measurePuts(figures);
    for (bool parks : {false, true}) {
      if (Status ready = meet(); !ready) return ready.error();
      std::vector<double> trips;
      if (Status done = isFirst() ? sendTrips(parks, trips) : answerTrips(parks); !done) return done.error();
      if (!isFirst()) continue;
      std::sort(trips.begin(), trips.end());
      (parks ? figures.parked : figures.spinning) = trips[trips.size() / 2];
      (parks ? figures.leastParked : figures.leastSpinning) = trips.front();
    }
    if (Status done = meet(); !done) return done.error();
    return figures;
  }

 private:
  explicit LinkProbe(Transport& transport) : transport_(transport) {}

  bool isFirst() const { return transport_.rank() == 0; }
  int peer() const { return 1 - transport_.rank(); }
  Status meet() {
    const std::byte nothing{};
    return meeting_.gather({&nothing, 1}, {"the other rank", "to be measured with it"}, kTimeout);
  }

  void measurePuts(LinkFigures& figures) {
    const std::vector<std::byte> source(kLargest, std::byte{2});
    std::byte* const own = transport_.local(memory_);
    const auto copyTo = [&](std::byte* to, size_t bytes) {
      std::memcpy(to, source.data(), bytes);
      asm volatile("" : : "r"(to) : "memory");  // no copy may be optimised away
    };
    size_t bytes = kSmallest;
    for (PutRate& rate : figures.rates) {
      const size_t puts = std::max<size_t>(1, kBatchBytes / bytes);
      int64_t put = INT64_MAX, copy = INT64_MAX, known = INT64_MAX;
      for (int batch = 0; batch <= kBatches; ++batch) {
        const int64_t begin = monotonicNanoseconds();
        for (size_t i = 0; i < puts; ++i) transport_.put(peer(), memory_, 0, source.data(), bytes);
        const int64_t putEnd = monotonicNanoseconds();
        for (size_t i = 0; i < puts; ++i) copyTo(transport_.local(memory_), bytes);
        const int64_t copyEnd = monotonicNanoseconds();
        for (size_t i = 0; i < puts; ++i) copyTo(own, bytes);
        const int64_t end = monotonicNanoseconds();
        if (batch == 0) continue;  // it touches the memory
        put = std::min(put, putEnd - begin);
        copy = std::min(copy, copyEnd - putEnd);
        known = std::min(known, end - copyEnd);
      }
      const auto computeRate = [all = static_cast<double>(puts * bytes) * 1e9](int64_t nanoseconds) {
        return all / static_cast<double>(std::max<int64_t>(1, nanoseconds));
      };
      rate = {bytes, computeRate(put), computeRate(copy), computeRate(known)};
      bytes *= 4;
    }
  }

  uint64_t load() const {
    auto* word = reinterpret_cast<uint64_t*>(transport_.local(counter_));
    // pairs with Transport::signal(); seq_cst because Doorbell requires it
    return std::atomic_ref<uint64_t>(*word).load(std::memory_order_seq_cst);
  }

  // Waits until the counter is at least `value`.
  Status await(uint64_t value, bool parks) { return parks ? awaitParked(value) : awaitSpinning(value); }
  Status awaitSpinning(uint64_t value) {
    for (uint64_t looks = 1; load() < value; ++looks) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
      if (looks % (1 << 20) == 0 && transport_.isAborted()) return Error{transport_.abortMessage()};
    }
    return {};
  }
  Status awaitParked(uint64_t value) {
    const Attention attention(transport_.doorbell());
    while (true) {
      const uint32_t epoch = transport_.doorbell().epoch();
      if (load() >= value) return {};
      if (transport_.isAborted()) return Error{transport_.abortMessage()};
      transport_.doorbell().park(epoch, 100'000'000);
    }
  }

  Status sendTrips(bool parks, std::vector<double>& trips) {
    const int64_t end = monotonicNanoseconds() + kTripsTime;
    do {
      const int64_t begin = monotonicNanoseconds();
      for (int trip = 0; trip < kTrips; ++trip) {
        transport_.signal(peer(), counter_, 0, 1);
        if (Status answered = await(++seen_, parks); !answered) return answered;
      }
      trips.push_back(static_cast<double>(monotonicNanoseconds() - begin) * 1e-9 / (2 * kTrips));
    } while (monotonicNanoseconds() < end);
    transport_.signal(peer(), counter_, 0, kStop);
    return {};
  }

  Status answerTrips(bool parks) {
    while (true) {
      if (Status asked = await(seen_ + 1, parks); !asked) return asked;
      const uint64_t now = load();
      if (now - seen_ >= kStop) {
        seen_ = now;
        return {};
      }
      seen_ = now;
      transport_.signal(peer(), counter_, 0, 1);
    }
  }

  Transport& transport_;
  SymmetricHandle memory_, counter_;
  AllGather meeting_;
  uint64_t seen_ = 0;  // of this rank's counter
};

}  // namespace

Expected<LinkFigures> probeLink(Transport& transport) {
  auto probe = LinkProbe::create(transport);
  if (!probe) return probe.error();
  takeUnit(transport.rank());
  return probe->run();
}

Expected<LinkFigures> probeThreads() {
  LocalRanks local(2);
  Expected<LinkFigures> first = LinkFigures{}, second = LinkFigures{};
  const Status started = runTogether(2, "the ranks", [&](int rank) {
    Expected<LinkFigures>& result = rank == 0 ? first : second;
    result = probeLink(local.transport(rank));
    if (!result) local.transport(rank).abort(result.error().message);
  });
  if (!started) return started.error();
  return first ? (second ? first : second) : first;
}

// This process is rank 0. Rank 1 is a forked child, which ends with it.
Expected<LinkFigures> probeProcesses() {
  // a process of another container may have the number of this one
  TransportSpec job{"shm", 2, 0, fmt::format("sluice-bench-link-{:08x}", std::random_device()()), kTimeout};
  const auto probe = [&](int rank) -> Expected<LinkFigures> {
    job.rank = rank;
    auto transport = makeTransport(job);
    if (!transport) return transport.error();
    Expected<LinkFigures> figures = probeLink(**transport);
    if (!figures) (*transport)->abort(figures.error().message);
    return figures;
  };
  const Expected<pid_t> child = startChild([&] { return probe(1) ? 0 : 1; });
  if (!child) return Error{fmt::format("rank 1: {}", child.error().message)};
  Expected<LinkFigures> figures = probe(0);
  if (!figures) kill(*child, SIGKILL);
  awaitChild(*child);
  return figures;
}

std::string formatText(const LinkFigures& figures) {
  std::string text = fmt::format("  {:<12}{:>12}{:>14}{:>16}{:>26}\n", "put bytes", "put GB/s", "memcpy GB/s",
                                 "put / memcpy", "to a known address GB/s");
  for (const PutRate& rate : figures.rates)
    text += fmt::format("  {:<12}{:>12.2f}{:>14.2f}{:>16.2f}{:>26.2f}\n", rate.bytes, rate.put * 1e-9,
                        rate.copy * 1e-9, rate.copy > 0 ? rate.put / rate.copy : 0, rate.known * 1e-9);
  return text + fmt::format(
                    "  a signal takes {:.2f} us (best {:.2f}) to a receiver that looks, {:.2f} us (best "
                    "{:.2f}) to one that sleeps\n",
                    figures.spinning * 1e6, figures.leastSpinning * 1e6, figures.parked * 1e6,
                    figures.leastParked * 1e6);
}

}  // namespace sluice::tools
