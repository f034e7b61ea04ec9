#include "runtime/exec/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sluice {

// As it lies on the board, before the counts.
struct Exchange::Header {
  uint64_t routing;
  int64_t tokens;
  uint64_t memory;
  uint32_t entry;
  uint32_t saved;
  uint32_t failed;
  char failure[220];
};

Expected<Exchange> Exchange::create(Transport& transport, const TaskProgram& program) {
  static_assert(sizeof(Header) == 256);
  Exchange exchange;
  exchange.transport_ = &transport;
  exchange.program_ = &program;
  exchange.counts_ = static_cast<size_t>(program.experts);
  exchange.message_.resize(sizeof(Header) + exchange.counts_ * sizeof(int32_t));
  auto boards = AllGather::create(transport, exchange.message_.size());
  if (!boards) return boards.error();
  exchange.boards_ = std::move(*boards);
  exchange.all_.resize(exchange.counts_ * static_cast<size_t>(transport.size()));
  return exchange;
}

Status Exchange::step(const StepOffer& offer, const std::vector<int32_t>& counts, double timeoutSeconds) {
  ++step_;
  Header header{
      offer.routing, offer.tokens, offer.memory, offer.entry.value, offer.saved, !offer.failure.empty(), {}};
  const size_t length = std::min(offer.failure.size(), sizeof(header.failure) - 1);
  std::memcpy(header.failure, offer.failure.data(), length);
  std::memcpy(message_.data(), &header, sizeof(header));
  std::memcpy(message_.data() + sizeof(header), counts.data(), counts_ * sizeof(int32_t));

  when_.clear();  // keeps its memory
  fmt::format_to(std::back_inserter(when_), "before entry '{}' (step {})", program_->at(offer.entry).name,
                 step_);
  if (Status all = boards_.gather(message_, {"the counts", when_}, timeoutSeconds); !all) return all;
  // every rank compares with rank 0, so that all come to the same end
  const int ranks = transport_->size();
  for (int source = 0; source < ranks; ++source)
    if (Status same = compare(source); !same) return same;
  for (int source = 0; source < ranks; ++source)
    std::memcpy(all_.data() + static_cast<size_t>(source) * counts_, boards_.of(source) + sizeof(Header),
                counts_ * sizeof(int32_t));
  if (!program_->at(offer.entry).expertIds) return {};
  for (int source = 0; source < ranks; ++source) {
    const Status sane = checkCounts(source);
    if (sane) continue;
    // others may have been told otherwise, and write already
    transport_->abort(sane.error().message);
    return Error{transport_->abortMessage()};
  }
  return {};
}

Exchange::Header Exchange::headerOf(int rank) const {
  Header header;
  std::memcpy(&header, boards_.of(rank), sizeof(header));
  header.failure[sizeof(header.failure) - 1] = '\0';
  return header;
}

std::string Exchange::entryName(uint32_t entry) const {
  return entry < program_->entries.size() ? fmt::format("'{}'", program_->entries[entry].name)
                                          : fmt::format("number {}", entry);
}

Status Exchange::compare(int source) const {
  const Header header = headerOf(source), first = headerOf(0);
  if (header.failed) return Error{fmt::format("rank {}: {}", source, header.failure)};
  if (header.entry != first.entry)
    return Error{fmt::format("rank {} runs entry {}, but rank 0 runs entry {}", source,
                             entryName(header.entry), entryName(first.entry))};
  if (header.memory != first.memory)
    return Error{fmt::format(
        "rank {} runs entry {} on other memory (saved set {}) than rank 0 (saved set {}): ranks must "
        "make contexts, and first use their saved sets, in the same order",
        source, entryName(header.entry), header.saved, first.saved)};
  if (header.routing != first.routing)
    return Error{
        fmt::format("rank {} runs entry {} after another routing than rank 0: counts and step have digest "
                    "{:016x}, but {:016x} at rank 0",
                    source, entryName(header.entry), header.routing, first.routing)};
  return {};
}

// Ids are distinct for a token, so that an expert has a token once at most.
Status Exchange::checkCounts(int source) const {
  const int64_t tokens = headerOf(source).tokens;
  if (tokens < 0 || tokens > program_->maxTokens)
    return Error{
        fmt::format("rank {} says it has {} tokens, expected 0 to {}", source, tokens, program_->maxTokens)};
  const int32_t* counts = all_.data() + static_cast<size_t>(source) * counts_;
  int64_t pairs = 0;
  for (size_t expert = 0; expert < counts_; ++expert) {
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
