// Ranks that loaded different programs: what is reported, and when.
#include "runtime/exec/identity.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

Program programOf(const MoeShape& shape, const std::string& name = "layer", int64_t heads = 0) {
  TaskProgram tables = buildMoeProgram(shape);
  tables.name = name;
  if (heads > 0) tables.symbols = {{"heads", heads}};
  auto program = Program::fromTaskProgram(std::move(tables));
  if (!program) FAIL(program.error().message);
  return std::move(*program);
}

std::string differenceOf(const Program& other, const Program& first) {
  return difference(makeIdentity(other.verified()), 1, makeIdentity(first.verified()), 0).value_or("");
}

TEST_CASE("the difference of two programs names what can be shown of it") {
  const Program first = programOf({.ranks = 2, .maxTokens = 256});
  CHECK(differenceOf(first, first) == "");
  CHECK(differenceOf(programOf({.ranks = 2, .maxTokens = 512}), first) ==
        "rank 1 loaded program 'layer' with max_tokens 512, but rank 0 one with max_tokens 256");
  CHECK(differenceOf(programOf({.ranks = 2, .maxTokens = 512}, "other"), first) ==
        "rank 1 loaded program 'other' with max_tokens 512, but rank 0 program 'layer' with max_tokens 256");
  CHECK(differenceOf(programOf({.ranks = 2, .experts = 8, .topK = 3, .maxTokens = 512}), first) ==
        "rank 1 loaded program 'layer' with experts 8, top_k 3, max_tokens 512, but rank 0 one with experts "
        "4, top_k 2, max_tokens 256");
  CHECK(differenceOf(programOf({.ranks = 2}, "layer", 8), programOf({.ranks = 2}, "layer", 16)) ==
        "rank 1 loaded program 'layer' with heads 8, but rank 0 one with heads 16");
  CHECK_THAT(
      differenceOf(programOf({.ranks = 2, .hidden = 48, .maxTokens = 256}), first),
      Catch::Matchers::StartsWith("rank 1 loaded program 'layer' with hidden 48, tensor x BF16 [T, 48], ") &&
          Catch::Matchers::Contains("but rank 0 one with hidden 32, tensor x BF16 [T, 32], "));
  CHECK_THAT(differenceOf(programOf({.ranks = 2, .maxTokens = 256, .window = 5}), first),
             Catch::Matchers::Matches("rank 1 loaded program 'layer' with fingerprint [0-9a-f]{16}, but rank "
                                      "0 one with fingerprint [0-9a-f]{16}"));
}

TEST_CASE("an identity may hold any bytes") {
  std::mt19937 random(3);
  const Identity own = makeIdentity(programOf({.ranks = 2}).verified());
  for (int trial = 0; trial < 200; ++trial) {
    Identity other = own;
    auto* bytes = reinterpret_cast<unsigned char*>(&other);
    if (trial < 2) std::memset(bytes, trial == 0 ? 0xff : 0, sizeof(other));
    for (int i = 0; i < trial * 10; ++i)
      bytes[random() % sizeof(other)] = static_cast<unsigned char>(random());
    other.fingerprint = own.fingerprint + 1;
    CHECK_THAT(*difference(other, 1, own, 0), Catch::Matchers::StartsWith("rank 1 loaded program '"));
    CHECK_THAT(*difference(own, 1, other, 0), Catch::Matchers::StartsWith("rank 1 loaded program '"));
  }
}

// One thread makes the contexts of all ranks, one after the other; then rank 0 runs.
struct Ends {
  std::string created;  // the error of the last context
  std::string ran;
};
Ends createAndRun(const std::vector<std::vector<Program>>& programs) {
  LocalRanks ranks(static_cast<int>(programs.size()));
  std::vector<std::unique_ptr<Context>> contexts;
  Ends ends;
  for (size_t rank = 0; rank < programs.size(); ++rank)
    for (const Program& program : programs[rank]) {
      auto context = Context::create(program, ranks.transport(static_cast<int>(rank)), {.threads = 1});
      ends.created = context ? "" : context.error().message;
      if (context) contexts.push_back(std::move(*context));
    }
  LayerData data = makeLayerData(programs[0][0].tables(), {.tokens = {.counts = {3, 4}}});
  if (Status bound = bindAll(data, 0, *contexts[0]); !bound) return {bound.error().message, ""};
  const Status ran = contexts[0]->run("forward");
  ends.ran = ran ? "" : ran.error().message;
  return ends;
}

TEST_CASE("whoever comes later is told the difference, and so is who came first") {
  const Program first = programOf({.ranks = 2, .maxTokens = 256});
  for (const Program& other :
       {programOf({.ranks = 2, .maxTokens = 512}), programOf({.ranks = 2, .experts = 8, .maxTokens = 256}),
        programOf({.ranks = 2, .maxTokens = 256, .window = 5})}) {
    const Ends ends = createAndRun({{first}, {other}});
    CHECK(ends.created == differenceOf(other, first));
    CHECK(ends.ran == differenceOf(other, first));
  }
}

TEST_CASE("a program for another number of ranks is told to the others, too") {
  const Program first = programOf({.ranks = 2}), other = programOf({.ranks = 3, .experts = 6});
  const Ends ends = createAndRun({{first}, {other}});
  CHECK(ends.created == "the program was compiled for 3 ranks, but the transport has 2");
  CHECK(ends.ran == "rank 1: " + ends.created);
}

TEST_CASE("two programs that ranks load in another order are told apart") {
  const Program one = programOf({.ranks = 2, .maxTokens = 256}, "one");
  const Program two = programOf({.ranks = 2, .maxTokens = 256}, "two");
  const Ends ends = createAndRun({{one, two}, {two, one}});
  CHECK(ends.created == "rank 1 loaded program 'two', but rank 0 program 'one'");
  CHECK(ends.ran == ends.created);
}

TEST_CASE("a rank that loads no program at all is named") {
  const Program program = programOf({.ranks = 2});
  LocalRanks ranks(2);
  auto context = Context::create(program, ranks.transport(1), {.threads = 1, .timeoutSeconds = 0.05});
  REQUIRE(context.ok());
  CHECK((*context)->run("forward").error().message ==
        "rank 1: waited 0.05 s for the program of rank 0 before entry 'forward'");
  CHECK((*context)->run("forward").error().message ==
        "an earlier step failed: rank 1: waited 0.05 s for the program of rank 0 before entry 'forward'");
}

TEST_CASE("memory that no rank has stops the others, too") {
  TaskProgram huge = buildMoeProgram({.ranks = 2});
  for (Region& region : huge.regions)
    if (region.stride > 4) region.stride = int64_t{1} << 38;
  auto program = Program::fromTaskProgram(std::move(huge));
  INFO((program ? "" : program.error().message));
  REQUIRE(program.ok());
  LocalRanks ranks(2);
  const auto context = Context::create(*program, ranks.transport(0), {.threads = 1});
  REQUIRE_FALSE(context.ok());
  CHECK_THAT(context.error().message, Catch::Matchers::StartsWith("rank 0: region '"));
  CHECK(ranks.transport(1).abortMessage() == context.error().message);
}

}  // namespace
}  // namespace sluice
