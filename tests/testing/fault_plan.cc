#include "tests/testing/fault_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <random>

namespace sluice {
namespace {

// How a field is written, in this order.
struct Field {
  std::string_view word;
  int64_t (*get)(const FaultPlan&);
  void (*set)(FaultPlan&, int64_t);
  int64_t most;
  std::string_view unit = "";
};

template <auto Member>
constexpr Field field(std::string_view word, int64_t most, std::string_view unit = "") {
  return {word, [](const FaultPlan& plan) { return static_cast<int64_t>(plan.*Member); },
          [](FaultPlan& plan, int64_t value) {
            plan.*Member = static_cast<std::remove_reference_t<decltype(plan.*Member)>>(value);
          },
          most, unit};
}

constexpr int64_t kMany = int64_t{1} << 62;
constexpr Field kFields[] = {
    field<&FaultPlan::seed>("seed=", kMany),          field<&FaultPlan::delay>("delay=", 100, "%"),
    field<&FaultPlan::reorder>("reorder=", 100, "%"), field<&FaultPlan::duplicate>("duplicate=", 100, "%"),
    field<&FaultPlan::drop>("drop@n=", kMany),        field<&FaultPlan::cut>("cut@n=", kMany),
    field<&FaultPlan::die>("die@n=", kMany),          field<&FaultPlan::corrupt>("corrupt@n=", kMany),
    field<&FaultPlan::rank>("rank=", 1 << 20),
};

Status parseWord(std::string_view word, FaultPlan& plan) {
  if (word == "hide") return plan.hide = true, Status();
  if (word == "overtake") return plan.overtake = true, Status();
  for (const Field& field : kFields) {
    if (!word.starts_with(field.word)) continue;
    std::string_view digits = word.substr(field.word.size());
    if (!field.unit.empty() && digits.ends_with(field.unit)) digits.remove_suffix(field.unit.size());
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > field.most)
      return Error{fmt::format("fault plan: '{}', expected a number from 0 to {}", word, field.most)};
    field.set(plan, value);
    return {};
  }
  return Error{fmt::format("fault plan: '{}' is no fault", word)};
}

}  // namespace

uint64_t mixBits(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::string toText(const FaultPlan& plan) {
  std::string text;
  const bool strikes = plan.drop + plan.cut + plan.die + plan.corrupt > 0;
  for (const Field& field : kFields) {
    const int64_t value = field.get(plan);
    const bool always = field.word == "seed=" || (field.word == "rank=" && strikes);
    if (value != 0 || always) text += fmt::format("{}{}{} ", field.word, value, field.unit);
  }
  if (plan.hide) text += "hide ";
  if (plan.overtake) text += "overtake ";
  text.pop_back();
  return text;
}

Expected<FaultPlan> parseFaultPlan(std::string_view text) {
  FaultPlan plan;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0)
      if (Status word = parseWord(text.substr(0, end), plan); !word) return word.error();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return plan;
}

FaultPlan randomFaultPlan(uint64_t seed, int ranks, int64_t operations) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t count) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(count));
  };
  FaultPlan plan;
  plan.seed = seed;
  plan.hide = pick(3) > 0;
  const int percents[] = {0, 2, 10, 40};
  plan.delay = percents[pick(4)];
  plan.reorder = percents[pick(4)];
  plan.duplicate = percents[pick(4)];
  plan.rank = static_cast<int>(pick(ranks));
  const int64_t at = 1 + (pick(3) == 0 ? pick(8 * ranks) : pick(operations));
  switch (pick(8)) {
    case 0:
    case 1:
      plan.rank = 0;
      break;
    case 2:
      plan.drop = at;
      break;
    case 3:
      plan.cut = at;
      break;
    case 4:
      plan.corrupt = 1 + pick(5 * ranks);
      break;
    default:
      plan.die = at;
  }
  return plan;
}

}  // namespace sluice
