// What the survivors say when a rank has died or left, and what their contexts are good for then.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "tests/testing/faulty_transport.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;

const MoeShape kShape{.ranks = 3, .experts = 3, .topK = 3, .cores = 2, .slotRows = 32};

// The messages of each rank for `forward`, and for `forward` once more.
struct Messages {
  std::vector<std::string> first, second;
};
Messages runForward(const std::function<Transport&(int rank)>& transport, const ContextOptions& options) {
  const Program program = programOf(buildMoeProgram(kShape));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {5, 6, 7}}});
  Messages messages{std::vector<std::string>(3), std::vector<std::string>(3)};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      auto context = Context::create(program, transport(rank), options);
      if (!context || !bindAll(data, rank, **context)) return;
      const Status first = (*context)->run("forward");
      // the context must have let go of this
      for (auto* tensors : {&data.inputs[rank], &data.outputs[rank]})
        for (auto& [name, tensor] : *tensors) std::memset(tensor.data(), 0x5a, tensor.bytes());
      const Status second = (*context)->run("forward");
      messages.first[rank] = first ? "" : first.error().message;
      messages.second[rank] = second ? "" : second.error().message;
    });
  for (std::thread& thread : threads) thread.join();
  return messages;
}

const std::vector<ContextOptions> kExecutors = {{.executor = ExecutorKind::kSerial, .timeoutSeconds = 20},
                                                {.threads = 1, .timeoutSeconds = 20},
                                                {.threads = 2, .timeoutSeconds = 20}};

TEST_CASE("the survivors of a death name the dead rank, and the event they waited for") {
  for (const ContextOptions& options : kExecutors) {
    // 6 operations to announce what was loaded, 3 for the counts and 6 for the meeting: rank 2 dies before it
    // has announced any rows
    const auto runAndDie = [&] {
      FaultyRanks ranks(3, *parseFaultPlan("die@n=16 rank=2"));
      return runForward([&](int rank) -> Transport& { return ranks.transport(rank); }, options);
    };
    Messages messages = runAndDie();
    // a survivor that has not read all counts by then was waiting for those: again
    const auto isEarly = [](const std::string& message) {
      return message.find("was waiting for the counts") != std::string::npos;
    };
    for (int turn = 0; turn < 20 && std::any_of(messages.first.begin(), messages.first.end(), isEarly);
         ++turn)
      messages = runAndDie();
    for (const int survivor : {0, 1}) {
      const std::string& message = messages.first[survivor];
      INFO(message);
      CHECK_THAT(message, Matches("rank 2 has died; rank [01], core [01]: was waiting for event rows_arrived"
                                  "\\[0\\] \\([0-9]+ of 18 rows\\) before task up_proj\\[0,[0-9]\\]; "
                                  "missing: .*7 rows from rank 2"));
      CHECK(messages.second[survivor] == "an earlier step failed: rank 2 has died");
    }
    CHECK_THAT(messages.first[0], Contains("rank 0, core"));
    CHECK_THAT(messages.first[1], Contains("rank 1, core"));
  }
}

// Who comes to its step after the death has not waited.
TEST_CASE("who waits for the counts or the program of a rank that dies says so") {
  const auto firstOf = [](const char* plan) {
    FaultyRanks ranks(3, *parseFaultPlan(plan));
    return runForward([&](int rank) -> Transport& { return ranks.transport(rank); },
                      {.threads = 1, .timeoutSeconds = 20})
        .first[0];
  };
  // on a loaded machine rank 0 may still wait for rank 1
  const std::string rank1 = "the (program|counts) of rank 1 before entry 'forward'( \\(step 1\\))?";
  CHECK_THAT(firstOf("die@n=7 rank=2"),
             Matches("rank 2 has died(; rank 0 was waiting for (the counts of rank 2 before entry 'forward' "
                     "\\(step 1\\)|" +
                     rank1 + "))?"));
  CHECK_THAT(
      firstOf("die@n=1 rank=2"),
      Matches("rank 2 has died(; rank 0 was waiting for (the program of rank 2 before entry 'forward'|" +
              rank1 + "))?"));
}

// Rank 2 leaves, as far as it lets the others know, when it has sent its counts: it never signals.
class Leaver final : public ForwardingTransport {
 public:
  Leaver(Transport& real, std::atomic<bool>& left) : ForwardingTransport(real), left_(left) {}
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override {
    if (real_.rank() == 2)
      left_ = true;
    else
      real_.signal(rank, handle, offset, n);
  }
  bool hasLeft(int rank) const override { return rank == 2 && real_.rank() != 2 && left_; }

 private:
  std::atomic<bool>& left_;
};

TEST_CASE("a rank that has left and owes rows is named at once") {
  for (const ContextOptions& options : kExecutors) {
    LocalRanks local(3);
    std::atomic<bool> left{false};
    std::vector<std::unique_ptr<Leaver>> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(std::make_unique<Leaver>(local.transport(rank), left));
    const Messages messages = runForward([&](int rank) -> Transport& { return *ranks[rank]; }, options);
    for (const std::string& message : messages.first) {
      INFO(message);
      CHECK_THAT(message, Matches("rank 2 left while rank [01], core [01] was still waiting for event "
                                  "rows_arrived\\[0\\] \\([0-9]+ of 18 rows\\) before task up_proj\\[0,[0-9]"
                                  "\\]; missing: .*7 rows from rank 2"));
    }
  }
}

// Rank 2 has left as soon as it sent what it had to: nobody minds.
class EarlyLeaver final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  bool hasLeft(int rank) const override { return rank == 2; }
};

TEST_CASE("a rank that left after it sent its rows is no fault") {
  const Program program = programOf(buildMoeProgram({.ranks = 3, .experts = 3, .topK = 1}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {20, 20, 0}}});
  // no token, and no token goes there: rank 2 owes nothing but its counts
  for (int rank : {0, 1})
    for (int t = 0; t < 20; ++t) data.inputs[rank].at("expert_ids").as<int32_t>()[t] = t % 2;
  LocalRanks local(3);
  std::vector<std::unique_ptr<EarlyLeaver>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(std::make_unique<EarlyLeaver>(local.transport(rank)));
  std::vector<std::unique_ptr<Context>> contexts;
  for (int rank = 0; rank < 3; ++rank) {
    auto context = Context::create(program, *ranks[rank], {.threads = 1, .timeoutSeconds = 20});
    REQUIRE(context.ok());
    REQUIRE(bindAll(data, rank, **context).ok());
    contexts.push_back(std::move(*context));
  }
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  // rank 2 posts its counts first; then the others, late enough to have to wait for each other
  for (int rank = 2; rank >= 0; --rank) {
    threads.emplace_back([&, rank] {
      const Status ran = contexts[rank]->run("forward");
      messages[rank] = ran ? "" : ran.error().message;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (std::thread& thread : threads) thread.join();
  // rank 2 itself waits for the counts of the others, who have not left
  CHECK(messages == std::vector<std::string>{"", "", ""});
}

}  // namespace
}  // namespace sluice
