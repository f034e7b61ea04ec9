#include "tools/launch/rank_gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace sluice::tools {
namespace {

// The bytes per round; longer texts take several rounds. The pieces of all ranks together stay below the size
// of a huge page: otherwise each rank would take a huge page for its few words next to them.
size_t pieceBytes(int ranks) {
  constexpr size_t kAll = size_t{1} << 20, kLeast = size_t{1} << 10, kMost = size_t{1} << 15;
  return std::clamp(kAll / static_cast<size_t>(ranks), kLeast, kMost);
}

constexpr char kWell = '+', kFailed = '-';

}  // namespace

Expected<RankGather> RankGather::create(Transport& transport, double timeoutSeconds) {
  RankGather gather;
  gather.rank_ = transport.rank();
  gather.size_ = transport.size();
  gather.timeoutSeconds_ = timeoutSeconds;
  auto blocks = AllGather::create(transport, sizeof(uint64_t) + pieceBytes(gather.size_));
  if (!blocks) return blocks.error();
  gather.blocks_ = *blocks;
  return gather;
}

// Each block has the length of the whole text, and a piece of it.
Expected<std::vector<std::string>> RankGather::gather(std::string_view own, const Awaited& awaited,
                                                      int only) {
  std::vector<std::string> all(static_cast<size_t>(size_));
  const uint64_t length = own.size();
  const size_t most = pieceBytes(size_);
  uint64_t longest = 0;
  for (uint64_t at = 0; at == 0 || at < longest; at += most) {
    const std::string_view piece = at < length ? own.substr(at, most) : std::string_view();
    block_.assign(reinterpret_cast<const char*>(&length), sizeof(length));
    block_.append(piece);
    if (Status there = blocks_.gather(std::as_bytes(std::span(block_)), awaited, timeoutSeconds_); !there)
      return there.error();
    for (int rank = 0; rank < size_; ++rank) {
      uint64_t whole;
      std::memcpy(&whole, blocks_.of(rank), sizeof(whole));
      longest = std::max(longest, whole);
      if (at >= whole || (only >= 0 && only != rank_)) continue;
      all[static_cast<size_t>(rank)].append(reinterpret_cast<const char*>(blocks_.of(rank)) + sizeof(whole),
                                            std::min<uint64_t>(most, whole - at));
    }
  }
  return all;
}

Expected<std::optional<RankFailure>> RankGather::agree(const Status& own, const Awaited& awaited) {
  const Expected<std::vector<std::string>> all =
      gather(own ? std::string(1, kWell) : kFailed + own.error().message, awaited);
  if (!all) return all.error();
  for (size_t rank = 0; rank < all->size(); ++rank) {
    const std::string& text = (*all)[rank];
    if (text.empty() || text[0] != kFailed) continue;
    const bool common = std::all_of(all->begin(), all->end(), [&](const auto& each) { return each == text; });
    const std::string message = text.substr(1);
    return std::optional<RankFailure>(
        {static_cast<int>(rank), common ? message : fmt::format("rank {}: {}", rank, message)});
  }
  return std::optional<RankFailure>();
}

}  // namespace sluice::tools
