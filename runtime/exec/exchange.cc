#include "runtime/exec/exchange.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/comm/checksum.h"

namespace sluice {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kChecksumBytes = sizeof(uint64_t);

}  // namespace

Expected<Exchange> Exchange::create(Transport& transport, const TaskProgram& program) {
  Exchange exchange;
  exchange.transport_ = &transport;
  exchange.program_ = &program;
  const auto experts = static_cast<size_t>(program.experts), ranks = static_cast<size_t>(transport.size());
  exchange.message_.resize(kChecksumBytes + experts * sizeof(int32_t));
  exchange.boardBytes_ = (exchange.message_.size() + kLine - 1) / kLine * kLine;
  auto memory = transport.allocate(2 * exchange.boardBytes_ * ranks);
  if (!memory) return memory.error();
  exchange.memory_ = *memory;
  exchange.all_.resize(experts * ranks);
  return exchange;
}

size_t Exchange::offsetOf(uint64_t step, int source) const {
  return ((step & 1) * static_cast<size_t>(transport_->size()) + static_cast<size_t>(source)) * boardBytes_;
}

void Exchange::put(uint64_t step, const std::vector<int32_t>& counts) {
  std::byte* const data = message_.data() + kChecksumBytes;
  std::memcpy(data, counts.data(), message_.size() - kChecksumBytes);
  const uint64_t checksum = checksumOf(step, data, message_.size() - kChecksumBytes);
  std::memcpy(message_.data(), &checksum, kChecksumBytes);
  const int ranks = transport_->size(), rank = transport_->rank();
  for (int i = 0; i < ranks; ++i)
    transport_->put((rank + i) % ranks, memory_, offsetOf(step, rank), message_.data(), message_.size());
}

Status Exchange::take(uint64_t step, EntryId entry, const Meeting& meeting) {
  step_ = step;
  // others may have been told otherwise, and write already
  const auto fail = [&](const std::string& message) {
    transport_->abort(message);
    return Error{transport_->abortMessage()};
  };
  const size_t bytes = message_.size() - kChecksumBytes;
  const int ranks = transport_->size();
  for (int source = 0; source < ranks; ++source) {
    const std::byte* const board = transport_->local(memory_) + offsetOf(step, source);
    uint64_t checksum = 0;
    std::memcpy(&checksum, board, kChecksumBytes);
    if (checksum != checksumOf(step, board + kChecksumBytes, bytes))
      return fail(fmt::format("rank {}: the counts of rank {} before entry '{}' (step {}) arrived damaged",
                              transport_->rank(), source, program_->at(entry).name, step));
    std::memcpy(all_.data() + static_cast<size_t>(source * program_->experts), board + kChecksumBytes, bytes);
  }
  for (int source = 0; source < ranks; ++source)
    if (const Status sane = checkCounts(source, meeting.tokensOf(source)); !sane)
      return fail(sane.error().message);
  return {};
}

// Ids are distinct for a token, so that an expert has a token once at most.
Status Exchange::checkCounts(int source, int64_t tokens) const {
  if (tokens < 0 || tokens > program_->maxTokens)
    return Error{
        fmt::format("rank {} says it has {} tokens, expected 0 to {}", source, tokens, program_->maxTokens)};
  const int32_t* counts = all_.data() + static_cast<size_t>(source * program_->experts);
  int64_t pairs = 0;
  for (int32_t expert = 0; expert < program_->experts; ++expert) {
    if (counts[expert] < 0 || counts[expert] > tokens)
      return Error{fmt::format("rank {} says it has {} tokens for expert {}, expected 0 to {}", source,
                               counts[expert], expert, tokens)};
    pairs += counts[expert];
  }
  if (pairs <= tokens * program_->topK) return {};
  return Error{fmt::format("rank {} says it has {} (token, k) pairs, expected at most {}", source, pairs,
                           tokens * program_->topK)};
}

uint64_t Exchange::digest() const {
  uint64_t state = 0xcbf29ce484222325u ^ step_;  // FNV-1a over words
  for (int32_t count : all_) {
    state = (state ^ static_cast<uint32_t>(count)) * 0x100000001b3u;
    state ^= state >> 32;
  }
  return state;
}

}  // namespace sluice
