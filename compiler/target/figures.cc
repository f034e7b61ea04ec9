#include "compiler/target/figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {

void Figures::fail(const std::string& field, const std::string& expected) {
  if (error_.empty())
    error_ = fmt::format("{}: error: '{}' is missing or wrong, expected {}", path_, field, expected);
}

bool Figures::has(const char* field) {
  known_.push_back(field);
  return root_.contains(field);
}

void Figures::allowOnly(const Json& object, const std::string& field,
                        const std::vector<std::string_view>& keys) {
  if (!object.is_object()) return;
  for (const auto& [key, unused] : object.items())
    if (std::ranges::find(keys, key) == keys.end() && error_.empty())
      error_ = fmt::format("{}: error: unknown '{}{}{}', expected {}", path_, field, field.empty() ? "" : ".",
                           key, fmt::join(keys, ", "));
}

const Figures::Json& Figures::member(const Json& object, const char* name) {
  static const Json kNull;
  const auto it = object.is_object() ? object.find(name) : object.end();
  return it == object.end() ? kNull : *it;
}

const Figures::Json& Figures::value(const char* field) {
  known_.push_back(field);
  const Json& figure = member(root_, field);
  if (!member(figure, "source").is_string()) fail(field, "an object with 'value' and 'source'");
  allowOnly(figure, field, {"value", "source"});
  return member(figure, "value");
}

std::string Figures::text(const char* field) {
  known_.push_back(field);
  const Json& found = member(root_, field);
  if (found.is_string()) return found.get<std::string>();
  fail(field, "a string");
  return {};
}

std::vector<std::string> Figures::texts(const Json& found, const std::string& field) {
  std::vector<std::string> all;
  for (const Json& each : found)
    if (each.is_string()) all.push_back(each.get<std::string>());
  if (!found.is_array() || all.empty() || all.size() != found.size()) fail(field, "an array of texts");
  return all;
}

void Figures::number(const Json& found, const std::string& field, int64_t least, int64_t most, int32_t& out) {
  // a number above int64 would become negative
  const bool fits = found.is_number_integer() && found <= most && found >= least;
  if (!fits) return fail(field, fmt::format("a number from {} to {}", least, most));
  out = found.get<int32_t>();
}

void Figures::real(const Json& found, const std::string& field, double least, double most, double& out) {
  const double value = found.is_number() ? found.get<double>() : -1;
  if (!found.is_number() || !(value >= least && value <= most))
    return fail(field, fmt::format("a number from {:g} to {:g}", least, most));
  out = value;
}

void Figures::reals(const Json& object, const std::string& field, std::initializer_list<Real> members,
                    std::vector<std::string_view> objects) {
  for (const Real& real : members) objects.push_back(real.name);
  allowOnly(object, field, objects);
  for (const auto& [name, least, most, out] : members)
    real(member(object, name), fmt::format("{}.{}", field, name), least, most, out);
}

}  // namespace sluice
