#include "compiler/graph/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/base/one_line.h"

namespace sluice {

namespace {

// Counts what the parser has taken from the text: the only source of positions at a SAX event.
class CountingIterator {
 public:
  using difference_type = std::ptrdiff_t;
  using value_type = char;
  using pointer = const char*;
  using reference = const char&;
  using iterator_category = std::input_iterator_tag;

  CountingIterator(const char* at, size_t* taken) : at_(at), taken_(taken) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }

 private:
  const char* at_;
  size_t* taken_;
};

// The first byte of each line.
class LineTable {
 public:
  explicit LineTable(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(i + 1);
    }
  }

  SourcePos at(size_t offset) const {
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), offset);
    const auto line = next - starts_.begin();
    return {static_cast<int32_t>(line), static_cast<int32_t>(offset - starts_[line - 1] + 1)};
  }

 private:
  std::vector<size_t> starts_ = {0};
};

// The parser's message without its prefixes and line numbers, as one line.
std::string cleanMessage(std::string_view what) {
  if (const size_t end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
  if (what.starts_with("parse error")) {
    if (const size_t colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
  }
  std::string message(what);
  for (char& c : message) {
    if (c < ' ' || c > '~') c = '?';
  }
  return message;
}

// Builds the tree from SAX events. A token begins at the first byte after the previous event that is not
// white space, comma or colon: between two events the parser takes nothing else, except one byte after a
// number.
class TreeBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  TreeBuilder(std::string_view text, std::string_view file) : text_(text), file_(file), lines_(text) {
    if (text.starts_with("\xEF\xBB\xBF")) event_ = 3;
  }

  bool null() { return add({}); }
  bool boolean(bool value) { return add({.kind = JsonKind::kBool, .boolean = value}); }
  bool number_integer(number_integer_t value) { return add({.kind = JsonKind::kInteger, .integer = value}); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max()))
      return fail(tokenStart(), fmt::format("number {} is out of range", value));
    return add({.kind = JsonKind::kInteger, .integer = static_cast<int64_t>(value)});
  }
  bool number_float(number_float_t, const string_t& text) {
    return add({.kind = JsonKind::kReal, .text = text});
  }
  bool string(string_t& value) { return add({.kind = JsonKind::kString, .text = value}); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(JsonKind::kObject); }
  bool start_array(size_t) { return open(JsonKind::kArray); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    keyPos_ = tokenStart();
    key_ = name;
    event_ = taken;
    if (open_.back().items.size() >= kMaxJsonFields)
      return fail(keyPos_, fmt::format("object has more than {} fields", kMaxJsonFields));
    for (const JsonValue& item : open_.back().items) {
      if (item.key != name) continue;
      return fail(keyPos_,
                  fmt::format("field '{}' is given twice, first in line {}", name, item.keyPos.line));
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    const size_t offset = std::min(position == 0 ? 0 : position - 1, text_.size());
    return fail(lines_.at(offset), cleanMessage(error.what()));
  }

  Expected<JsonValue> finish(bool accepted) {
    if (error_) return *error_;
    if (!accepted || !open_.empty()) return errorAt(file_, lines_.at(text_.size()), "unexpected end of text");
    return std::move(root_);
  }

  size_t taken = 0;  // incremented by the iterator

 private:
  SourcePos tokenStart() const {
    const size_t start = text_.find_first_not_of(" \t\r\n,:", event_);
    return lines_.at(std::min(start, text_.size()));
  }

  bool fail(SourcePos pos, std::string_view message) {
    if (!error_) error_ = errorAt(file_, pos, message);
    return false;
  }

  JsonValue placed(JsonValue value) {
    value.pos = tokenStart();
    value.key = std::move(key_);
    value.keyPos = keyPos_;
    key_.clear();
    event_ = taken;
    return value;
  }

  bool add(JsonValue value) { return attach(placed(std::move(value))); }

  bool attach(JsonValue value) {
    (open_.empty() ? root_ : open_.back().items.emplace_back()) = std::move(value);
    return true;
  }

  bool open(JsonKind kind) {
    open_.push_back(placed({.kind = kind}));
    if (open_.size() <= kMaxJsonDepth) return true;
    return fail(open_.back().pos, fmt::format("nested deeper than {}", kMaxJsonDepth));
  }

  bool close() {
    event_ = taken;
    JsonValue value = std::move(open_.back());
    open_.pop_back();
    return attach(std::move(value));
  }

  std::string_view text_;
  std::string_view file_;
  LineTable lines_;
  size_t event_ = 0;  // value of `taken` at the previous event
  std::string key_;
  SourcePos keyPos_;
  std::vector<JsonValue> open_;
  JsonValue root_;
  std::optional<Error> error_;
};

}  // namespace

std::string_view jsonKindName(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return "true or false";
    case JsonKind::kInteger:
      return "a whole number";
    case JsonKind::kReal:
      return "a number with a fraction or exponent";
    case JsonKind::kString:
      return "a string";
    case JsonKind::kArray:
      return "an array";
    case JsonKind::kObject:
      return "an object";
  }
  return "?";
}

Error errorAt(std::string_view file, SourcePos pos, std::string_view message) {
  return {messageLines(fmt::format("{}:{}:{}: error: {}", file, pos.line, pos.column, message))};
}

Expected<JsonValue> parseJson(std::string_view text, std::string_view file) {
  TreeBuilder builder(text, file);
  const CountingIterator begin(text.data(), &builder.taken);
  const CountingIterator end(text.data() + text.size(), &builder.taken);
  const bool accepted = nlohmann::json::sax_parse(begin, end, &builder);
  return builder.finish(accepted);
}

}  // namespace sluice
