#include "runtime/exec/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/hash.h"

namespace sluice {
namespace {

constexpr size_t kDigestWords = sizeof(uint64_t) / sizeof(int32_t);

}  // namespace

Expected<Exchange> Exchange::create(Transport& transport, const TaskProgram& program) {
  Exchange exchange;
  exchange.transport_ = &transport;
  exchange.program_ = &program;
  exchange.block_.resize(static_cast<size_t>(program.experts) + kDigestWords);
  auto boards = Boards::create(transport, exchange.block_.size() * sizeof(int32_t));
  if (!boards) return boards.error();
  exchange.boards_ = std::move(*boards);
  return exchange;
}

void Exchange::put(uint64_t step, const std::vector<int32_t>& counts, uint64_t idsDigest) {
  std::copy(counts.begin(), counts.end(), block_.begin());
  std::memcpy(block_.data() + program_->experts, &idsDigest, sizeof(idsDigest));
  boards_.put(step, std::as_bytes(std::span(block_)));
}

AllCounts Exchange::all() const {
  return {reinterpret_cast<const int32_t*>(boards_.of(step_, 0)), boards_.stride() / sizeof(int32_t)};
}

Status Exchange::take(uint64_t step, EntryId entry, const Meeting& meeting) {
  step_ = step;
  pairs_ = 0;
  // other ranks may have got different counts, and may already write here
  const auto fail = [&](const std::string& message) {
    transport_->abort(message);
    return Error{transport_->abortMessage()};
  };
  const int ranks = transport_->size();
  for (int source = 0; source < ranks; ++source)
    if (!boards_.isWhole(step, source))
      return fail(fmt::format("rank {}: the counts of rank {} before entry '{}' (step {}) arrived damaged",
                              transport_->rank(), source, program_->at(entry).name, step));
  for (int source = 0; source < ranks; ++source)
    if (const Status sane = checkCounts(source, meeting.rankTokens(source)); !sane)
      return fail(sane.error().message);
  for (int source = 0; source < ranks; ++source)
    if (Status same = checkGroup(source, meeting); !same) return same;
  return {};
}

// With the first rank of the group of `source`.
Status Exchange::checkGroup(int source, const Meeting& meeting) const {
  const Mesh& mesh = program_->mesh;
  if (mesh.tokens == TokenHolders::kOwn) return {};
  const int first = source - mesh.shardOf(source);
  const auto differ = [&](const std::string& found, const std::string& expected) {
    return Error{
        fmt::format("rank {} has {}, but rank {} of its group, which must have the same tokens, has {}",
                    source, found, first, expected)};
  };
  const int64_t tokens = meeting.rankTokens(source), firstTokens = meeting.rankTokens(first);
  if (tokens != firstTokens) return differ(fmt::format("{} tokens", tokens), fmt::format("{}", firstTokens));
  const int32_t* const counts = all().of(source);
  const int32_t* const firstCounts = all().of(first);
  for (int32_t expert = 0; expert < program_->experts; ++expert)
    if (counts[expert] != firstCounts[expert])
      return differ(fmt::format("{} tokens for expert {}", counts[expert], expert),
                    fmt::format("{}", firstCounts[expert]));
  const size_t digest = static_cast<size_t>(program_->experts);
  if (std::equal(counts + digest, counts + digest + kDigestWords, firstCounts + digest)) return {};
  return differ("other expert ids for its tokens", "the same counts");
}

// The ids of one token are distinct, so it occurs at most once per expert.
Status Exchange::checkCounts(int source, int64_t tokens) {
  if (tokens < 0 || tokens > program_->maxTokens)
    return Error{
        fmt::format("rank {} says it has {} tokens, expected 0 to {}", source, tokens, program_->maxTokens)};
  const int32_t* const counts = all().of(source);
  int64_t pairs = 0;
  for (int32_t expert = 0; expert < program_->experts; ++expert) {
    if (counts[expert] < 0 || counts[expert] > tokens)
      return Error{fmt::format("rank {} says it has {} tokens for expert {}, expected 0 to {}", source,
                               counts[expert], expert, tokens)};
    pairs += counts[expert];
  }
  pairs_ += pairs;
  if (pairs <= tokens * program_->topK) return {};
  return Error{fmt::format("rank {} says it has {} (token, k) pairs, expected at most {}", source, pairs,
                           tokens * program_->topK)};
}

uint64_t Exchange::digest() const {
  uint64_t state = step_;
  for (int source = 0; source < transport_->size(); ++source)
    state = hashContent(std::span(all().of(source), static_cast<size_t>(program_->experts)), state);
  return state;
}

}  // namespace sluice
