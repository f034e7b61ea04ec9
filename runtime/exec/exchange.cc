#include "runtime/exec/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sluice {

// As it lies on the board, before the counts.
struct Exchange::Header {
  uint64_t fingerprint;
  uint32_t entry;
  uint32_t failed;
  char failure[240];
};

Expected<Exchange> Exchange::create(Transport& transport, int64_t counts) {
  static_assert(sizeof(Header) == 256);
  Exchange exchange;
  exchange.transport_ = &transport;
  exchange.counts_ = static_cast<size_t>(counts);
  exchange.message_.resize(sizeof(Header) + exchange.counts_ * sizeof(int32_t));
  auto boards = AllGather::create(transport, exchange.message_.size());
  if (!boards) return boards.error();
  exchange.boards_ = *boards;
  exchange.all_.resize(exchange.counts_ * static_cast<size_t>(transport.size()));
  return exchange;
}

Status Exchange::step(const StepOffer& offer, const std::vector<int32_t>& counts,
                      const std::string& entryName, double timeoutSeconds) {
  ++step_;
  Header header{offer.fingerprint, offer.entry, !offer.failure.empty(), {}};
  const size_t length = std::min(offer.failure.size(), sizeof(header.failure) - 1);
  std::memcpy(header.failure, offer.failure.data(), length);
  std::memcpy(message_.data(), &header, sizeof(header));
  std::memcpy(message_.data() + sizeof(header), counts.data(), counts_ * sizeof(int32_t));

  when_.clear();  // keeps its memory
  fmt::format_to(std::back_inserter(when_), "before entry '{}' (step {})", entryName, step_);
  if (Status all = boards_.gather(message_, {"the counts", when_}, timeoutSeconds); !all) return all;
  // every rank compares with rank 0, so that all come to the same end
  const int ranks = transport_->size();
  for (int source = 0; source < ranks; ++source)
    if (Status same = compare(source); !same) return same;
  for (int source = 0; source < ranks; ++source)
    std::memcpy(all_.data() + static_cast<size_t>(source) * counts_, boards_.of(source) + sizeof(Header),
                counts_ * sizeof(int32_t));
  return {};
}

Exchange::Header Exchange::headerOf(int rank) const {
  Header header;
  std::memcpy(&header, boards_.of(rank), sizeof(header));
  header.failure[sizeof(header.failure) - 1] = '\0';
  return header;
}

Status Exchange::compare(int source) const {
  const Header header = headerOf(source), first = headerOf(0);
  if (header.failed) return Error{fmt::format("rank {}: {}", source, header.failure)};
  if (header.fingerprint != first.fingerprint)
    return Error{fmt::format("rank {} runs program {:016x}, but rank 0 runs {:016x}", source,
                             header.fingerprint, first.fingerprint)};
  if (header.entry != first.entry)
    return Error{
        fmt::format("rank {} runs entry {}, but rank 0 runs entry {}", source, header.entry, first.entry)};
  return {};
}

}  // namespace sluice
