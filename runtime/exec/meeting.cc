#include "runtime/exec/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sluice {
namespace {

// Copies into a zero-terminated array of characters; truncates to whole UTF-8 characters.
void copyText(std::string_view text, std::span<char> to) {
  size_t length = std::min(text.size(), to.size() - 1);
  const auto isContinued = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  while (length > 0 && length < text.size() && isContinued(length)) --length;
  std::copy_n(text.begin(), length, to.begin());
}

// Takes the first of the items "NAME=VALUE" off `rest`, which "; " separates. Empty: there is none.
std::string_view takeItem(std::string_view& rest) {
  const size_t end = std::min(rest.find("; "), rest.size());
  const std::string_view item = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 2, rest.size()));
  return item;
}

std::string_view itemName(std::string_view item) { return item.substr(0, item.find('=')); }

// "VALUE", or "another value" if no item has the name, because the text was too long.
std::string_view valueIn(std::string_view items, std::string_view name) {
  while (!items.empty())
    if (const std::string_view item = takeItem(items); itemName(item) == name)
      return item.substr(std::min(name.size() + 1, item.size()));
  return "another value";
}

}  // namespace

// The layout on the board.
struct Meeting::Header {
  uint64_t step;
  uint64_t routing;
  uint64_t placement;
  uint64_t memory;
  int64_t tokens;
  int64_t rows;
  int64_t common;
  uint32_t kind;
  uint32_t context;
  uint32_t entry;
  uint32_t saved;
  uint32_t refuses;
  uint32_t asks;
  char name[64];
  char program[72];
  char failure[408];  // or, where refuses is 0, what the caller of an action that must be the same gave

  std::string does() const {
    return kind == static_cast<uint32_t>(StepOffer::Kind::kRun) ? fmt::format("runs entry '{}'", name)
                                                                : fmt::format("is about to {}", name);
  }
};

Expected<Meeting> Meeting::create(Transport& transport) {
  static_assert(sizeof(Header) == 624);
  Meeting meeting;
  meeting.transport_ = &transport;
  auto boards = AllGather::create(transport, sizeof(Header));
  if (!boards) return boards.error();
  meeting.boards_ = std::move(*boards);
  return meeting;
}

Status Meeting::hold(const StepOffer& offer, double timeoutSeconds) {
  Header header{offer.step,
                offer.routing,
                offer.placement,
                offer.memory,
                offer.tokens,
                offer.rows,
                offer.common,
                static_cast<uint32_t>(offer.kind),
                offer.context,
                offer.entry.value,
                offer.saved,
                !offer.failure.empty(),
                offer.asks,
                {},
                {},
                {}};
  copyText(offer.name, header.name);
  copyText(offer.program, header.program);
  copyText(offer.failure.empty() ? offer.arguments : offer.failure, header.failure);

  const bool isRun = offer.kind == StepOffer::Kind::kRun && !offer.name.empty();
  when_.clear();  // keeps its memory
  if (isRun)
    fmt::format_to(std::back_inserter(when_), "before entry '{}' (step {})", offer.name, offer.step);
  else
    fmt::format_to(std::back_inserter(when_), "before step {}", offer.step);
  const std::span<const std::byte> own{reinterpret_cast<const std::byte*>(&header), sizeof(header)};
  if (Status all = boards_.gather(own, {"the counts", when_}, timeoutSeconds); !all) return all;
  // report a refusal rather than a difference between ranks, because it may be the cause
  const int ranks = transport_->size();
  anyAsks_ = false;
  for (int source = 0; source < ranks; ++source) {
    const Header found = readOfferHeader(source);
    if (found.refuses) return Error{fmt::format("rank {}: {}", source, found.failure)};
    anyAsks_ |= found.asks != 0;
  }
  // every rank compares with rank 0, so that all get the same result
  for (int source = 1; source < ranks; ++source)
    if (Status same = compare(source); !same) return same;
  return {};
}

int64_t Meeting::rankTokens(int rank) const { return readOfferHeader(rank).tokens; }
int64_t Meeting::rankRows(int rank) const { return readOfferHeader(rank).rows; }

Meeting::Header Meeting::readOfferHeader(int rank) const {
  Header header;
  std::memcpy(&header, boards_.of(rank), sizeof(header));
  header.name[sizeof(header.name) - 1] = '\0';
  header.program[sizeof(header.program) - 1] = '\0';
  header.failure[sizeof(header.failure) - 1] = '\0';
  return header;
}

Status Meeting::compare(int source) const {
  const Header header = readOfferHeader(source), first = readOfferHeader(0);
  if (header.step != first.step)
    return Error{fmt::format("rank {} {} as step {}, but rank 0 {} as step {}", source, header.does(),
                             header.step, first.does(), first.step)};
  const std::string argument = differingArgument(source, header, first);
  if (header.kind != first.kind || header.entry != first.entry || std::strcmp(header.name, first.name) != 0)
    return Error{fmt::format("rank {} {}, but rank 0 {}{}{}", source, header.does(), first.does(),
                             argument.empty() ? "" : ": ", argument)};
  if (header.context != first.context)
    return Error{fmt::format(
        "rank {} {} of context {} of its workspace (program '{}'), but rank 0 of context {} (program '{}')",
        source, header.does(), header.context, header.program, first.context, first.program)};
  if (header.common != first.common)
    return Error{
        fmt::format("rank {} {} with {} as the number that all ranks must have alike, but rank 0 with {}",
                    source, header.does(), header.common, first.common)};
  if (header.placement != first.placement)
    return Error{fmt::format(
        "rank {} {} with another placement of experts than rank 0: digest {:016x}, but {:016x} at "
        "rank 0",
        source, header.does(), header.placement, first.placement)};
  if (header.memory != first.memory)
    return Error{
        fmt::format("rank {} {} on other memory (saved set {}) than rank 0 (saved set {}): ranks must "
                    "make contexts, and first use their saved sets, in the same order",
                    source, header.does(), header.saved, first.saved)};
  if (header.routing == first.routing) return {};
  if (!argument.empty()) return Error{argument};
  if (header.kind == static_cast<uint32_t>(StepOffer::Kind::kAgree))
    return Error{fmt::format("rank {} {} otherwise than rank 0: digest {:016x}, but {:016x} at rank 0",
                             source, header.does(), header.routing, first.routing)};
  return Error{
      fmt::format("rank {} {} after another routing than rank 0: counts and step have digest {:016x}, but "
                  "{:016x} at rank 0",
                  source, header.does(), header.routing, first.routing)};
}

// The first argument that differs, and both values, if both ranks make the same call. Empty: there is none.
std::string Meeting::differingArgument(int source, const Header& header, const Header& first) const {
  const auto isAction = [](const Header& each) {
    return each.kind == static_cast<uint32_t>(StepOffer::Kind::kAgree);
  };
  if (!isAction(header) || !isAction(first) || header.routing == first.routing) return {};
  std::string_view own = header.failure, theirs = first.failure;
  const size_t call = own.find(": ");
  if (call == std::string_view::npos || own.substr(0, call) != theirs.substr(0, theirs.find(": "))) return {};
  own.remove_prefix(call + 2);
  theirs.remove_prefix(call + 2);
  for (std::string_view items : {own, theirs})
    while (!items.empty()) {
      const std::string_view name = itemName(takeItem(items));
      if (const auto a = valueIn(own, name), b = valueIn(theirs, name); a != b)
        return fmt::format("rank {} passed {} as {} to {}, but rank 0 passed {}; all ranks must agree",
                           source, name, a, std::string_view(header.failure).substr(0, call), b);
    }
  return {};
}

}  // namespace sluice
