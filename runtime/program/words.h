// The words of the program: one per value of an enum, in the order of the values, the same in the text form,
// in JSON, in reports and in messages. They are made from the names in program.fbs: kRowsOfSlot is
// rows_of_slot.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/program/program.h"

namespace sluice::text {

using Words = std::vector<std::string>;

// The word of an enumerator: an extent is its letter, a type has the name it has in tensor files.
template <class E>
std::string enumWord(E value) {
  const std::string name = enumNames(value)[static_cast<size_t>(value)] + 1;  // without the k
  if constexpr (std::is_same_v<E, DType>) return name;
  if constexpr (std::is_same_v<E, Extent>)
    if (value != Extent::kFixed) return name.substr(0, 1);
  std::string word;
  for (char c : name) {
    if (!word.empty() && std::isupper(static_cast<unsigned char>(c))) word += '_';
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return word;
}

template <class E>
const Words& listWords(E) {
  static const Words words = [] {
    Words all;
    for (size_t i = 0; i <= static_cast<size_t>(E::MAX); ++i) all.push_back(enumWord(static_cast<E>(i)));
    return all;
  }();
  return words;
}

// The word of a value; "?9", which does not parse, if the enum has no value 9.
template <class E>
std::string word(E value) {
  return value <= E::MAX ? enumWord(value) : "?" + std::to_string(static_cast<size_t>(value));
}

// "R" or "4096".
inline std::string word(const Dim& dim) {
  return dim.extent == Extent::kFixed ? std::to_string(dim.size) : word(dim.extent);
}

template <class E>
std::optional<E> fromWord(std::string_view word) {
  const Words& words = listWords(E{});
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) return std::nullopt;
  return static_cast<E>(found - words.begin());
}

// "swiglu, swiglu_clamp, ...", for messages.
template <class E>
std::string wordList() {
  std::string list;
  for (const std::string& word : listWords(E{})) list += (list.empty() ? "" : ", ") + word;
  return list;
}

// "core 2", "cube 3", "vector 17": what reports and messages call a core.
inline std::string coreName(CoreKind kind, int64_t number) {
  return (kind == CoreKind::kUnified ? "core" : word(kind)) + " " + std::to_string(number);
}

}  // namespace sluice::text
