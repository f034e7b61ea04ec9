#include "compiler/graph/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/dialect/moe.h"

namespace sluice {

bool expectKind(ErrorSink& errors, const JsonValue& value, JsonKind kind, std::string_view what) {
  if (value.kind == kind) return true;
  errors.fail(value.pos,
              fmt::format("{} is {}, expected {}", what, jsonKindName(value.kind), jsonKindName(kind)));
  return false;
}

void checkName(ErrorSink& errors, SourcePos pos, std::string_view what, std::string_view name) {
  if (moe::isValidName({name.data(), name.size()})) return;
  errors.fail(pos,
              fmt::format("{} is '{}', expected a name: a letter or underscore, then letters, digits and "
                          "underscores, at most 64 characters",
                          what, name));
}

Fields::Fields(ErrorSink& errors, const JsonValue& object, std::string what)
    : errors_(errors), object_(object), what_(std::move(what)) {
  expectKind(errors_, object_, JsonKind::kObject, what_);
  empty_.pos = object.pos;
}

const JsonValue* Fields::findAny(std::string_view name) {
  if (std::ranges::find(known_, name) == known_.end()) known_.push_back(name);
  if (object_.kind != JsonKind::kObject) return nullptr;
  const auto it = std::ranges::find(object_.items, name, &JsonValue::key);
  return it == object_.items.end() ? nullptr : &*it;
}

const JsonValue* Fields::find(std::string_view name, JsonKind kind) {
  const JsonValue* value = findAny(name);
  if (value == nullptr) return nullptr;
  return expectKind(errors_, *value, kind, fmt::format("field '{}' of {}", name, what_)) ? value : nullptr;
}

const JsonValue& Fields::require(std::string_view name, JsonKind kind) {
  const JsonValue* value = find(name, kind);
  if (value != nullptr) return *value;
  // Has no effect after an error about a wrong kind.
  errors_.fail(object_.pos, fmt::format("{} has no field '{}'", what_, name));
  empty_.kind = kind;
  return empty_;
}

std::string Fields::optionalString(std::string_view name) {
  const JsonValue* value = find(name, JsonKind::kString);
  return value == nullptr ? std::string() : value->text;
}

std::string Fields::name(std::string_view field) {
  const JsonValue& value = require(field, JsonKind::kString);
  checkName(errors_, value.pos, fmt::format("field '{}' of {}", field, what_), value.text);
  return value.text;
}

std::string Fields::optionalName(std::string_view field) {
  const JsonValue* value = find(field, JsonKind::kString);
  if (value == nullptr) return {};
  checkName(errors_, value->pos, fmt::format("field '{}' of {}", field, what_), value->text);
  return value->text;
}

void Fields::finish() {
  if (object_.kind != JsonKind::kObject) return;
  for (const JsonValue& item : object_.items) {
    if (std::ranges::find(known_, item.key) != known_.end()) continue;
    errors_.fail(item.keyPos, fmt::format("{} has an unknown field '{}', expected {}", what_, item.key,
                                          fmt::join(known_, ", ")));
  }
}

}  // namespace sluice
