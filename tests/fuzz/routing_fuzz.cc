// Routings: files of shares and words for --expect, --routing and --tokens. The first byte chooses.
#include <cmath>
#include <numeric>
#include <string>

#include "compiler/target/expect.h"
#include "tests/fuzz/fuzz.h"
#include "tools/moe/inputs.h"

namespace sluice {
namespace {

TaskProgram sizes() {
  TaskProgram program;
  program.mesh.ep = 3;
  program.experts = 7;
  program.topK = 2;
  program.maxTokens = 40;
  return program;
}

void tryExpectation(const std::string& text, const std::string& place) {
  const Expected<Expectation> expectation = readExpectation(text);
  if (!expectation) return fuzz::requireMessage(expectation.error().message, place);
  fuzz::require(expectation->exponent >= 0 && expectation->exponent <= 10, "exponents are from 0 to 10");
  const double sum = std::accumulate(expectation->shares.begin(), expectation->shares.end(), 0.0);
  fuzz::require(std::isfinite(sum) && (expectation->shares.empty() || sum > 0), "shares have a positive sum");
}

void tryRouting(std::string_view text) {
  const Expected<tools::RoutingSpec> routing = tools::parseRouting(text);
  if (!routing) return fuzz::requireMessage(routing.error().message, "");
  fuzz::require(std::isfinite(routing->exponent) && routing->exponent >= 0, "exponents are not negative");
}

void tryTokens(std::string_view text) {
  tools::InputsSpec spec;
  Expected<tools::TokensSpec> tokens = tools::parseTokens(text);
  if (!tokens) return fuzz::requireMessage(tokens.error().message, "");
  spec.tokens = std::move(*tokens);
  const TaskProgram program = sizes();
  const Expected<std::vector<int64_t>> counts = tools::tokensOfRanks(program, spec);
  if (!counts) return fuzz::requireMessage(counts.error().message, "");
  fuzz::require(static_cast<int>(counts->size()) == program.mesh.peers(),
                "every rank has a number of tokens");
  for (const int64_t count : *counts)
    fuzz::require(count >= 0 && count <= program.maxTokens, "tokens are from 0 to max_tokens");
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const fuzz::ScratchFile file(".json");
  fuzz::Choices choices(data, size);
  switch (choices.byte() % 4) {
    case 0:
      file.write(choices.rest());
      tryExpectation(file.path(), file.path() + ":");
      break;
    case 1:
      tryExpectation("zipf:" + std::string(choices.rest()), "error:");
      break;
    case 2:
      tryRouting(choices.rest());
      break;
    default:
      tryTokens(choices.rest());
  }
  return 0;
}
