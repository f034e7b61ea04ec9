// Reading typed fields out of a JSON tree.
//
// An ErrorSink keeps the first error; after it readers continue with empty values, and the owner of the sink
// checks it at the end. None of these may outlive the tree.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/json_tree.h"
#include "runtime/base/expected.h"

namespace sluice {

class ErrorSink {
 public:
  explicit ErrorSink(std::string_view file) : file_(file) {}
  ErrorSink(const ErrorSink&) = delete;
  ErrorSink& operator=(const ErrorSink&) = delete;

  void fail(SourcePos pos, std::string_view message) {
    if (!first_) first_ = errorAt(file_, pos, message);
  }
  const std::optional<Error>& first() const { return first_; }

 private:
  std::string_view file_;
  std::optional<Error> first_;
};

// The fields of one object. finish() reports those that were not read.
class Fields {
 public:
  // `what` names the object in messages: "node 'combine'". A value that is not an object is an error.
  Fields(ErrorSink& errors, const JsonValue& object, std::string what);

  // Null if the field is absent or, after an error, of another kind.
  const JsonValue* find(std::string_view name, JsonKind kind);
  // As find(), but absence is an error; instead of null, returns an empty value of `kind` at the object's
  // position.
  const JsonValue& require(std::string_view name, JsonKind kind);
  // As find(), for a field that may be of several kinds.
  const JsonValue* findAny(std::string_view name);

  std::string string(std::string_view name) { return require(name, JsonKind::kString).text; }
  std::string optionalString(std::string_view name);
  // A name: a letter or underscore, then letters, digits and underscores, at most 64 characters.
  std::string name(std::string_view field);
  std::string optionalName(std::string_view field);

  void finish();
  void fail(SourcePos pos, std::string_view message) { errors_.fail(pos, message); }
  const std::string& what() const { return what_; }

 private:
  ErrorSink& errors_;
  const JsonValue& object_;
  std::string what_;
  std::vector<std::string_view> known_;
  JsonValue empty_;
};

// Reports a value that is not of `kind`; `what` names it.
bool expectKind(ErrorSink& errors, const JsonValue& value, JsonKind kind, std::string_view what);

// Reports text that is not a valid name.
void checkName(ErrorSink& errors, SourcePos pos, std::string_view what, std::string_view name);

}  // namespace sluice
