// The words of the text form: one for each value of an enum, in the order of the values, and the rule by
// which a name is written bare or in quotes. Shared by printing, parsing and diff.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/program/program.h"

namespace sluice::text {

using Words = std::span<const std::string_view>;

inline constexpr std::array<std::string_view, 4> kExtentWords = {"fixed", "T", "R", "P"};
inline constexpr std::array<std::string_view, 5> kTypeWords = {"F32", "BF16", "F16", "I32", "I64"};
inline constexpr std::array<std::string_view, 4> kRoleWords = {"input", "output", "temp", "saved"};
inline constexpr std::array<std::string_view, 6> kSpaceWords = {"tokens",  "rows",    "sends",
                                                                "returns", "experts", "once"};
inline constexpr std::array<std::string_view, 4> kEventSpaceWords = {"one", "rows", "experts", "tokens"};
inline constexpr std::array<std::string_view, 2> kUnitWords = {"tasks", "rows"};
inline constexpr std::array<std::string_view, 6> kRuleWords = {
    "constant", "rows_of_slot", "slots_of_expert", "rows_of_expert", "valid_pairs", "slots_of_tokens"};
inline constexpr std::array<std::string_view, 11> kOpWords = {
    "dispatch",    "gmm", "gmm_weight_grad", "activation",     "activation_grad",    "combine_return",
    "combine_sum", "add", "scale",           "gmm_activation", "gmm_activation_grad"};
inline constexpr std::array<std::string_view, 3> kCoreWords = {"unified", "cube", "vector"};

// Fields of a Tiling, in its order; each is 4 bytes.
inline constexpr std::array<std::string_view, 8> kTilingWords = {"m",      "n",     "k",     "tile_m",
                                                                 "tile_n", "flags", "alpha", "reserved"};
inline constexpr size_t kAlphaField = 6;  // the one that is a float

constexpr Words wordsOf(Extent) { return kExtentWords; }
constexpr Words wordsOf(DType) { return kTypeWords; }
constexpr Words wordsOf(Role) { return kRoleWords; }
constexpr Words wordsOf(SpaceKind) { return kSpaceWords; }
constexpr Words wordsOf(EventSpace) { return kEventSpaceWords; }
constexpr Words wordsOf(EventUnit) { return kUnitWords; }
constexpr Words wordsOf(ThresholdRule) { return kRuleWords; }
constexpr Words wordsOf(OpKind) { return kOpWords; }
constexpr Words wordsOf(CoreKind) { return kCoreWords; }

// The word of a value; "?9" where the enum has no value 9, which does not parse.
template <class E>
std::string word(E value) {
  const Words words = wordsOf(value);
  const auto index = static_cast<size_t>(value);
  return index < words.size() ? std::string(words[index]) : "?" + std::to_string(index);
}

// Words that begin a statement, and `none`: as names they are written in quotes.
bool isReserved(std::string_view word);

// Letters, digits, '_' and '.', not beginning with a digit or '.'.
bool isBareName(std::string_view name);

// The name as it is, where it is bare and not reserved; else in quotes with \" \\ \n \t \xNN.
std::string quoteName(std::string_view name);

// Always in quotes.
std::string quote(std::string_view string);

// What differs from 0, as "n=64 k=32 alpha=0.5"; empty if nothing does.
std::string tilingText(const Tiling& tiling);

// "BF16 [R, 1536]"
std::string typeText(const Buffer& buffer);

// "R * 128 bytes symmetric saved"
std::string regionText(const Region& region);

// "[rows] counts tasks to constant(12) remote"
std::string eventText(const EventArray& event);

}  // namespace sluice::text
