// The counts that ranks exchange before a step, and which ones a rank refuses.
#include "runtime/exec/exchange.h"

#include <catch2/catch.hpp>
#include <limits>
#include <thread>

#include "runtime/comm/in_process.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

struct Said {
  StepOffer offer;
  std::vector<int32_t> counts;
  uint64_t idsDigest = 0;
};

struct Heard {
  std::vector<std::string> messages;  // by rank; "" if the step goes on
  std::vector<std::vector<int32_t>> all;
  std::vector<uint64_t> digests;
  bool aborted = false;
};

// One step of ranks with these counts.
Heard exchange(const TaskProgram& program, const std::vector<Said>& said) {
  const int ranks = static_cast<int>(said.size());
  InProcessGroup group(ranks);
  Heard heard{std::vector<std::string>(ranks), std::vector<std::vector<int32_t>>(ranks),
              std::vector<uint64_t>(ranks), false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      auto meeting = Meeting::create(group.transport(rank));
      auto exchange = Exchange::create(group.transport(rank), program);
      StepOffer offer = said[rank].offer;
      if (offer.kind == StepOffer::Kind::kRun) offer.name = program.at(offer.entry).name;
      exchange->put(offer.step, said[rank].counts, said[rank].idsDigest);
      Status step = meeting->hold(offer, 20);
      if (step && offer.routing == 0) step = exchange->take(offer.step, offer.entry, *meeting);
      heard.messages[rank] = step ? "" : step.error().message;
      if (!step || offer.routing != 0) return;
      for (int source = 0; source < ranks; ++source)
        for (int32_t expert = 0; expert < program.experts; ++expert)
          heard.all[rank].push_back(exchange->all().of(source)[expert]);
      heard.digests[rank] = exchange->digest();
    });
  for (std::thread& thread : threads) thread.join();
  heard.aborted = group.transport(0).isAborted();
  return heard;
}

TaskProgram program() { return buildMoeProgram({.ranks = 2, .experts = 4, .topK = 2, .maxTokens = 50}); }

const EntryId kFirst{0}, kSecond{1};

StepOffer offer(EntryId entry, int64_t tokens, uint64_t routing = 0) {
  StepOffer offer;
  offer.step = 1;
  offer.entry = entry;
  offer.tokens = tokens;
  offer.routing = routing;
  return offer;
}

Said good() { return {offer(kFirst, 10), {10, 4, 3, 3}, 5}; }

std::vector<std::string> both(const std::string& message) { return {message, message}; }

TEST_CASE("counts of all ranks are everywhere, with the same digest") {
  const Heard heard = exchange(program(), {good(), {offer(kFirst, 0), {0, 0, 0, 0}}});
  CHECK(heard.messages == both(""));
  for (const auto& all : heard.all) CHECK(all == std::vector<int32_t>{10, 4, 3, 3, 0, 0, 0, 0});
  CHECK(heard.digests[0] == heard.digests[1]);
  CHECK(exchange(program(), {good(), good()}).digests[0] != heard.digests[0]);
}

TEST_CASE("a rank that cannot run the step, runs another entry, or follows another routing stops all ranks") {
  Said failing = good();
  failing.offer.failure = "the cat sat on it";
  Heard heard = exchange(program(), {good(), failing});
  CHECK(heard.messages == both("rank 1: the cat sat on it"));
  CHECK_FALSE(heard.aborted);

  heard = exchange(program(), {good(), {offer(kSecond, 10), {10, 4, 3, 3}}});
  CHECK(heard.messages == both("rank 1 runs entry 'backward', but rank 0 runs entry 'forward'"));
  CHECK_FALSE(heard.aborted);

  heard =
      exchange(program(), {{offer(kSecond, 10, 5), {0, 0, 0, 0}}, {offer(kSecond, 10, 0xabc), {0, 0, 0, 0}}});
  CHECK(heard.messages == both("rank 1 runs entry 'backward' after another routing than rank 0: counts and "
                               "step have digest 0000000000000abc, but 0000000000000005 at rank 0"));
  CHECK_FALSE(heard.aborted);
}

TEST_CASE("counts that no rank can have are refused before anything is sent by them") {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const auto heardOf = [](int64_t tokens, std::vector<int32_t> counts) {
    return exchange(program(), {good(), {offer(kFirst, tokens), std::move(counts)}});
  };
  const auto check = [&](int64_t tokens, std::vector<int32_t> counts, const std::string& message) {
    const Heard heard = heardOf(tokens, std::move(counts));
    CHECK(heard.messages == both(message));
    CHECK(heard.aborted);
  };
  check(10, {0, 0, -1, 0}, "rank 1 says it has -1 tokens for expert 2, expected 0 to 10");
  check(10, {0, 11, 0, 0}, "rank 1 says it has 11 tokens for expert 1, expected 0 to 10");
  check(10, {6, 6, 5, 4}, "rank 1 says it has 21 (token, k) pairs, expected at most 20");
  check(10, {kMost, kMost, kMost, kMost},
        "rank 1 says it has 2147483647 tokens for expert 0, expected 0 to 10");
  check(51, {0, 0, 0, 0}, "rank 1 says it has 51 tokens, expected 0 to 50");
  check(-1, {0, 0, 0, 0}, "rank 1 says it has -1 tokens, expected 0 to 50");
  CHECK(heardOf(50, {50, 50, 0, 0}).messages == both(""));
}

TEST_CASE("ranks of a group that must have the same tokens are refused if they have others, and can go on") {
  TaskProgram same = buildMoeProgram({.ranks = 4, .experts = 4, .topK = 2, .maxTokens = 50});
  same.mesh = {2, 2, TokenHolders::kSame};
  const auto check = [&](const Said& last, const std::string& message) {
    const Said other{offer(kFirst, 20), {10, 10, 10, 10}, 6};  // another group may have others
    const Heard heard = exchange(same, {other, other, good(), last});
    CHECK(heard.messages == std::vector<std::string>(4, message));
    CHECK_FALSE(heard.aborted);
  };
  check(good(), "");
  const std::string first = ", but rank 2 of its group, which must have the same tokens, has ";
  check({offer(kFirst, 11), {10, 4, 3, 3}, 5}, "rank 3 has 11 tokens" + first + "10");
  check({offer(kFirst, 10), {10, 4, 4, 2}, 5}, "rank 3 has 4 tokens for expert 2" + first + "3");
  check({offer(kFirst, 10), {10, 4, 3, 3}, uint64_t{5} << 32},
        "rank 3 has other expert ids for its tokens" + first + "the same counts");
  same.mesh.tokens = TokenHolders::kOwn;
  check({offer(kFirst, 11), {10, 4, 3, 4}, 4}, "");
}

TEST_CASE("a rank that is at another step, or runs another context, stops all ranks with both named") {
  Said other = good();
  other.offer.step = 4;
  CHECK(exchange(program(), {good(), other}).messages ==
        both("rank 1 runs entry 'forward' as step 4, but rank 0 runs entry 'forward' as step 1"));
  other = good();
  other.offer.context = 2;
  other.offer.program = "two";
  Said first = good();
  first.offer.program = "one";
  CHECK(exchange(program(), {first, other}).messages ==
        both("rank 1 runs entry 'forward' of context 2 of its workspace (program 'two'), but rank 0 of "
             "context 0 (program 'one')"));
  other = good();
  other.offer.kind = StepOffer::Kind::kAgree;
  other.offer.name = "take a set";
  CHECK(exchange(program(), {good(), other}).messages ==
        both("rank 1 is about to take a set, but rank 0 runs entry 'forward'"));
}

TEST_CASE("what a rank refuses is said rather than what it does differently, and cut at a whole character") {
  Said other = good();
  other.offer.step = 4;
  other.offer.failure = "no";
  CHECK(exchange(program(), {good(), other}).messages == both("rank 1: no"));
  other.offer.failure = std::string(406, 'a') + "\xc3\xa9";
  CHECK(exchange(program(), {good(), other}).messages == both("rank 1: " + std::string(406, 'a')));
  other.offer.failure = std::string(405, 'a') + "\xc3\xa9\xc3\xa9";
  CHECK(exchange(program(), {other, good()}).messages ==
        both("rank 0: " + std::string(405, 'a') + "\xc3\xa9"));
}

TEST_CASE("an entry that uses an earlier routing posts counts that nobody looks at") {
  const Said said{offer(kSecond, 10, 7), {-5, 1000, 0, 0}};
  CHECK(exchange(program(), {said, said}).messages == both(""));
}

}  // namespace
}  // namespace sluice
