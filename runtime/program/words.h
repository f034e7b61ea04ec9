// The words of the program: one for each value of an enum, in the order of the values, the same in the text
// form, in JSON, in reports and in messages.
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

inline constexpr std::array<std::string_view, 5> kExtentWords = {"fixed", "T", "R", "P", "E"};
inline constexpr std::array<std::string_view, 5> kTypeWords = {"F32", "BF16", "F16", "I32", "I64"};
inline constexpr std::array<std::string_view, 4> kRoleWords = {"input", "output", "temp", "saved"};
inline constexpr std::array<std::string_view, 7> kSpaceWords = {"tokens",  "rows", "sends", "returns",
                                                                "experts", "once", "groups"};
inline constexpr std::array<std::string_view, 5> kEventSpaceWords = {"one", "rows", "experts", "tokens",
                                                                     "groups"};
inline constexpr std::array<std::string_view, 2> kUnitWords = {"tasks", "rows"};
inline constexpr std::array<std::string_view, 9> kRuleWords = {
    "constant",        "rows_of_slot",   "slots_of_expert",  "rows_of_expert", "valid_pairs",
    "slots_of_tokens", "slots_of_group", "groups_of_expert", "experts_of_rank"};
inline constexpr std::array<std::string_view, 11> kOpWords = {
    "dispatch",    "gmm", "gmm_weight_grad", "activation",     "activation_grad",    "combine_return",
    "combine_sum", "add", "scale",           "gmm_activation", "gmm_activation_grad"};
inline constexpr std::array<std::string_view, 3> kCoreWords = {"unified", "cube", "vector"};

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

// "core 2", "cube 3", "vector 17": what reports and messages call a core.
inline std::string coreName(CoreKind kind, int64_t number) {
  return (kind == CoreKind::kUnified ? "core" : word(kind)) + " " + std::to_string(number);
}

}  // namespace sluice::text
