// Random fault plans over small layers: right bits or a named error, and never a hang.
//
// SLUICE_FAULT_ROUNDS=10 takes ten times as many plans; SLUICE_FAULT_SEED=n takes plan n alone.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/clock.h"
#include "tests/runtime/faults/fault_run.h"

namespace sluice {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int64_t kPlans = 250;
#else
constexpr int64_t kPlans = 1200;
#endif
constexpr int kDrivers = 5;  // plans at the same time: those that lose something only wait
constexpr int64_t kLongestPlan = 90'000'000'000;  // ns

int64_t numberOf(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

// A plan that does not end is printed, and ends the test.
class Watch {
 public:
  Watch() : thread_([this] { watch(); }) {}
  ~Watch() {
    stop_ = true;
    thread_.join();
  }
  void begin(int driver, const std::string& what) {
    std::lock_guard lock(mutex_);
    running_[driver] = {what, monotonicNanoseconds()};
  }

 private:
  void watch() {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::lock_guard lock(mutex_);
      for (const auto& [what, begin] : running_) {
        if (what.empty() || monotonicNanoseconds() - begin < kLongestPlan) continue;
        std::fprintf(stderr, "hangs: %s\n", what.c_str());
        _exit(1);
      }
    }
  }

  std::mutex mutex_;
  std::array<std::pair<std::string, int64_t>, kDrivers> running_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string describe(const FaultCase& layer, const FaultPlan& plan, const ContextOptions& options) {
  return fmt::format("{}, {}, {}", layer.name,
                     options.threads == 0 ? "serial" : fmt::format("{} workers", options.threads),
                     toText(plan));
}

// Runs `plans` plans; returns what was wrong, and counts how they ended.
template <class MakePlan>
std::vector<std::string> runPlans(std::vector<FaultCase>& cases, int64_t first, int64_t last,
                                  const MakePlan& makePlan, std::map<std::string, int>& endings) {
  std::atomic<int64_t> next{first};
  std::mutex mutex;
  std::vector<std::string> wrong;
  Watch watch;
  const auto drive = [&](int driver) {
    for (int64_t seed = next++; seed < last; seed = next++) {
      FaultCase& layer = cases[static_cast<size_t>(seed) % cases.size()];
      const FaultPlan plan = makePlan(seed, layer);
      const ContextOptions options = executorOf(static_cast<uint64_t>(seed) / cases.size(), plan);
      watch.begin(driver, describe(layer, plan, options));
      const auto ends = runUnder(layer, plan, options);
      const std::string fault = judge(layer, plan, ends);
      watch.begin(driver, "");
      int failed = 0;
      for (const RankEnd& end : ends) failed += !end.error.empty();
      std::lock_guard lock(mutex);
      ++endings[failed == 0 ? "well" : failed == layer.program.ranks() ? "badly" : "both"];
      if (!fault.empty()) wrong.push_back(fmt::format("{}: {}", describe(layer, plan, options), fault));
    }
  };
  std::vector<std::thread> drivers;
  for (int driver = 0; driver < kDrivers; ++driver) drivers.emplace_back(drive, driver);
  for (std::thread& driver : drivers) driver.join();
  return wrong;
}

TEST_CASE("under any fault plan every rank has right bits or an error that names the fault") {
  std::vector<FaultCase> cases = makeFaultCases();
  const int64_t only = numberOf("SLUICE_FAULT_SEED", -1);
  const int64_t first = only < 0 ? 0 : only;
  const int64_t last = only < 0 ? kPlans * numberOf("SLUICE_FAULT_ROUNDS", 1) : only + 1;
  std::map<std::string, int> endings;
  const auto wrong = runPlans(
      cases, first, last,
      [](int64_t seed, const FaultCase& layer) {
        return randomFaultPlan(static_cast<uint64_t>(seed), layer.program.ranks(), layer.operations);
      },
      endings);
  for (const std::string& text : wrong) UNSCOPED_INFO(text);
  CHECK(wrong.empty());
  if (only >= 0) return;
  // all sorts of ends were seen
  WARN("ended well: " << endings["well"] << ", badly: " << endings["badly"] << ", both: " << endings["both"]);
  CHECK(endings["well"] > last / 5);
  CHECK(endings["badly"] > last / 5);
}

#if !defined(__SANITIZE_THREAD__)  // what such a transport makes is a data race: that sanitizer ends it
TEST_CASE("a transport that lets a signal pass the rows it covers is found") {
  std::vector<FaultCase> cases = makeFaultCases();
  std::map<std::string, int> endings;
  const auto wrong = runPlans(
      cases, 0, 48,
      [](int64_t seed, const FaultCase&) {
        return FaultPlan{.seed = static_cast<uint64_t>(seed), .hide = true, .overtake = true};
      },
      endings);
  WARN(wrong.size() << " of 48 found");
  CHECK(wrong.size() > 10);
  for (const std::string& text : wrong) {
    CHECK_THAT(text, Catch::Matchers::Contains("wrong bits"));
    break;
  }
}
#endif

}  // namespace
}  // namespace sluice
