#include "runtime/exec/exchange.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/hash.h"

namespace sluice {

Expected<Exchange> Exchange::create(Transport& transport, const TaskProgram& program) {
  Exchange exchange;
  exchange.transport_ = &transport;
  exchange.program_ = &program;
  auto boards = Boards::create(transport, static_cast<size_t>(program.experts) * sizeof(int32_t));
  if (!boards) return boards.error();
  exchange.boards_ = std::move(*boards);
  return exchange;
}

void Exchange::put(uint64_t step, const std::vector<int32_t>& counts) {
  boards_.put(step, std::as_bytes(std::span(counts)));
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
    if (const Status sane = checkCounts(source, meeting.tokensOf(source)); !sane)
      return fail(sane.error().message);
  return {};
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
    state = hashOf(std::span(all().of(source), static_cast<size_t>(program_->experts)), state);
  return state;
}

}  // namespace sluice
