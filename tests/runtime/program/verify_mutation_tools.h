// Random choices for the mutations of verify_mutations.h, and what they know of families.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "tests/runtime/program/verify_mutations.h"

namespace sluice {

inline int64_t below(Random& random, int64_t count) {
  return count <= 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(count));
}

// An empty table, as other damage may leave it, gets an element.
template <class T>
T& any(std::vector<T>& table, Random& random) {
  if (table.empty()) table.emplace_back();
  return table[below(random, static_cast<int64_t>(table.size()))];
}

// An id of the table, now and then none, one past the end, or far out.
template <class IdType, class T>
IdType anyId(const std::vector<T>& table, Random& random) {
  const auto size = static_cast<uint32_t>(table.size());
  switch (below(random, 12)) {
    case 0:
      return IdType{};
    case 1:
      return IdType{size};
    case 2:
      return IdType{0x7fffffffu};
    default:
      return IdType{static_cast<uint32_t>(below(random, size))};
  }
}

template <class T>
void dropLast(std::vector<T>& table) {
  if (!table.empty()) table.pop_back();
}

template <class Enum>
void anyEnum(Enum& value, int known, Random& random) {
  value = static_cast<Enum>(below(random, known + 1));
}

// Near the old value, or one of the usual suspects.
template <class Number>
void anyNumber(Number& value, Random& random) {
  switch (below(random, 9)) {
    case 0:
      value = 0;
      break;
    case 1:
      value = -1;
      break;
    case 2:
      value = std::numeric_limits<Number>::max();
      break;
    case 3:
      value = std::numeric_limits<Number>::min();
      break;
    case 4:
      value = value < 512 && value > 0 ? value * 2 : value;
      break;
    case 5:
      value = value / 2;
      break;
    default:
      value = static_cast<Number>(value % 4096 + below(random, 7) - 3);
      break;
  }
}

// The `number`-th family like this of the entry, or none.
inline FamilyId familyOf(const TaskProgram& p, EntryId entry, OpKind op, SpaceKind space, int number) {
  for (uint32_t f = 0; f < p.families.size(); ++f) {
    const Family& family = p.families[f];
    if (family.entry == entry && family.op == op && p.at(family.space).kind == space && number-- == 0)
      return FamilyId{f};
  }
  return {};
}

inline FamilyId realFamily(TaskProgram& p, Random& random) {
  return FamilyId{static_cast<uint32_t>(below(random, static_cast<int64_t>(p.families.size())))};
}

// An event of the entry; of another one if it has none.
inline EventId realEvent(TaskProgram& p, EntryId entry, Random& random) {
  for (int tries = 0;; ++tries) {
    const EventId id{static_cast<uint32_t>(below(random, static_cast<int64_t>(p.events.size())))};
    if (p.at(id).entry == entry || tries == 100) return id;
  }
}

// Sets one of the at most two links: the second, where there is one to stay.
inline void setSecond(std::vector<EventId>& links, EventId id) {
  links.resize(std::min<size_t>(links.size(), 1));
  links.push_back(id);
}

// Makes an event of space one wait for `tiles` tasks of every expert of a rank.
inline void countAllExperts(const TaskProgram& p, EventArray& event, int64_t tiles) {
  event.space = EventSpace::kOne;
  event.rule = p.expertsDiffer() ? ThresholdRule::kExpertsOfRank : ThresholdRule::kConstant;
  event.factor = p.expertsDiffer() ? tiles : tiles * p.maxExperts();
}

// Part of subtleMutations(): families that come late and write where others have read.
std::vector<Mutation> lateMutations();
// Part of subtleMutations(): lanes on other cores, and cores of other kinds.
std::vector<Mutation> coreMutations();

}  // namespace sluice
