// A JSON text as a tree in which every value has its position.
//
// Value types. The text is untrusted: nesting, duplicate fields and bad numbers are errors with a position.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice {

// A position in the text; lines and columns count from 1, columns in bytes.
struct SourcePos {
  int32_t line = 0;
  int32_t column = 0;
  friend bool operator==(const SourcePos&, const SourcePos&) = default;
};

enum class JsonKind : uint8_t { kNull, kBool, kInteger, kReal, kString, kArray, kObject };

// "a whole number", "an object", ...
std::string_view jsonKindName(JsonKind kind);

struct JsonValue {
  JsonKind kind = JsonKind::kNull;
  SourcePos pos{};
  bool boolean = false;
  int64_t integer = 0;
  std::string text{};              // kString, and kReal as written
  std::vector<JsonValue> items{};  // kArray, kObject
  std::string key{};               // of a field's value
  SourcePos keyPos{};
};

inline constexpr size_t kMaxJsonDepth = 16;
inline constexpr size_t kMaxJsonFields = 1024;  // per object

// `file` is used in messages.
Expected<JsonValue> parseJson(std::string_view text, std::string_view file);

// "file:line:column: error: message".
Error errorAt(std::string_view file, SourcePos pos, std::string_view message);

}  // namespace sluice
