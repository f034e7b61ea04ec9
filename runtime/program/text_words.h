// Words of the text form that are not in words.h, and the rule by which a name is written bare or in quotes.
// Shared by printing, parsing and diff.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/program/program.h"
#include "runtime/program/words.h"

namespace sluice::text {

// Calls visit(word, field) for each field of a Tiling, in its order.
template <class T, class Visit>
void forTilingFields(T& tiling, const Visit& visit) {
  visit("m", tiling.m), visit("n", tiling.n), visit("k", tiling.k);
  visit("tile_m", tiling.tileM), visit("tile_n", tiling.tileN), visit("flags", tiling.flags);
  visit("round_a", tiling.roundA), visit("round_b", tiling.roundB);
  visit("alpha", tiling.alpha), visit("activation", tiling.activation), visit("limit", tiling.limit);
}

// The letters of bare words and numbers.
constexpr bool isWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
constexpr bool isDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool isWordPart(char c) { return isWordStart(c) || isDigit(c) || c == '.'; }

// Words that begin a statement, and `none`: as names they are written in quotes.
bool isReserved(std::string_view word);

// Letters, digits, '_' and '.', not beginning with a digit or '.'.
bool isBareName(std::string_view name);

// The name as it is, if it is bare and not reserved; else in quotes with \" \\ \n \t \xNN.
std::string quoteName(std::string_view name);

// Always in quotes.
std::string quote(std::string_view string);

// The fields that differ from 0, for example "n=64 k=32 alpha=0.5 activation=geglu"; empty if there are none.
std::string tilingText(const Tiling& tiling);

// "BF16 [R, 1536]"
std::string typeText(const Buffer& buffer);

// "R * 128 bytes symmetric saved"
std::string regionText(const Region& region);

// "[rows] counts tasks to constant(12) remote"
std::string eventText(const EventArray& event);

}  // namespace sluice::text
