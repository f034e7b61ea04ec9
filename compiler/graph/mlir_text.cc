#include "compiler/graph/mlir_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/utf8.h"

namespace sluice {
namespace {

constexpr std::string_view kBytecodeMagic = "ML\xefR";
constexpr std::string_view kOpeners = "([{<";
constexpr std::string_view kClosers = ")]}>";

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

int hexValue(char c) {
  if (isDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool isWhiteSpace(std::string_view character) {
  return character == "\t" || character == "\n" || character == "\r";
}

// The reason why a text cannot be shown, or empty; `at` is the position.
std::string wrongCharacter(std::string_view text, size_t& at) {
  for (at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t length = utf8Length(rest);
    if (length == 0) return fmt::format("found byte 0x{:02x}, expected UTF-8", static_cast<uint8_t>(rest[0]));
    const std::string_view character = rest.substr(0, length);
    if (isControl(character) && !isWhiteSpace(character))
      return fmt::format("found control character 0x{:02x}", static_cast<uint8_t>(character.back()));
    at += length;
  }
  return {};
}

class Scanner {
 public:
  Scanner(std::string_view text, std::string_view file, int64_t firstLine)
      : text_(text), file_(file), firstLine_(firstLine) {}

  Status run() {
    if (text_.starts_with(kBytecodeMagic)) return fail(0, "found MLIR bytecode, expected text");
    size_t wrong = 0;
    if (const std::string why = wrongCharacter(text_, wrong); !why.empty()) return fail(wrong, why);
    while (at_ < text_.size())
      if (Status status = step(); !status) return status;
    return {};
  }

 private:
  // One open bracket, or the whole text.
  struct Level {
    char closer = '\0';
    int operators = 0;  // in the current affine expression, including its parentheses
  };

  Status fail(size_t at, std::string_view what) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = firstLine_ + std::ranges::count(before, '\n');
    const size_t column = at - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    return Error{fmt::format("{}:{}:{}: error: {}", file_, line, column, what)};
  }

  char peek(size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  // Takes one token, or the text between two.
  Status step() {
    const char c = text_[at_];
    if (isBlank(c)) return skip(1);
    if (c == '/' && peek(1) == '/') return skipComment();
    if (c == '"') return readString();
    if (c == '-' && peek(1) == '>') return skip(2);
    if ((c == '<' || c == '>') && peek(1) == '=') return endExpression(2);
    if (kOpeners.find(c) != kOpeners.npos) return open(c);
    if (kClosers.find(c) != kClosers.npos) return close(c);
    if (c == '#' || c == '!' || c == '@' || c == '%' || c == '^') return readPrefixed(c);
    if (isLetter(c) || isDigit(c)) return readWord();
    if (c == '+' || c == '-' || c == '*') return addOperator(1);
    return endExpression(1);
  }

  Status skip(size_t bytes) {
    at_ += bytes;
    return {};
  }

  Status skipComment() {
    at_ = std::min(text_.find('\n', at_), text_.size());
    return {};
  }

  Status endExpression(size_t bytes) {
    levels_.back().operators = 0;
    return skip(bytes);
  }

  // Messages show the value of a string, not its spelling.
  Status readString() {
    const size_t begin = at_++;
    std::string value;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\n') return {};  // not closed: the parser reports it
      if (text_[at_] != '\\') {
        value += text_[at_];
        continue;
      }
      const int high = hexValue(peek(1)), low = hexValue(peek(2));
      const bool isHex = high >= 0 && low >= 0;
      value += isHex ? static_cast<char>(high * 16 + low) : ' ';
      at_ += isHex ? 2 : 1;
    }
    size_t wrong = 0;
    if (const std::string why = wrongCharacter(value, wrong); !why.empty())
      return fail(begin, fmt::format("{} in a string", why));
    return endExpression(1);
  }

  Status open(char c) {
    if (c != '(') levels_.back().operators = 0;
    levels_.push_back({kClosers[kOpeners.find(c)], 0});
    return skipChecked(1, 0);
  }

  // The parser reports a bracket that closes a different one, and stops there; until then the depth is never
  // underestimated.
  Status close(char c) {
    if (levels_.back().closer != c) return endExpression(1);
    const int operators = levels_.back().operators;
    levels_.pop_back();
    return c == ')' ? addOperators(operators, 1) : endExpression(1);
  }

  Status addOperator(size_t bytes) { return addOperators(1, bytes); }

  Status addOperators(int count, size_t bytes) {
    levels_.back().operators += count;
    if (levels_.back().operators > kMaxMlirOperators)
      return fail(at_, fmt::format("an expression of more than {} operators", kMaxMlirOperators));
    return skip(bytes);
  }

  Status readWord() {
    const size_t begin = at_;
    while (isLetter(peek(0)) || isDigit(peek(0)) || peek(0) == '$' || peek(0) == '.') ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    const bool isOperator = word == "mod" || word == "floordiv" || word == "ceildiv";
    return isOperator ? addOperator(0) : Status{};
  }

  // #alias and !alias stand for their definitions; the names of dialects, values, symbols and blocks stand
  // for nothing that nests.
  Status readPrefixed(char prefix) {
    const size_t begin = at_++;
    while (isLetter(peek(0)) || isDigit(peek(0)) || peek(0) == '$' || peek(0) == '.' || peek(0) == '-') ++at_;
    levels_.back().operators = 0;
    const std::string_view name = text_.substr(begin, at_ - begin);
    const bool isAlias = (prefix == '#' || prefix == '!') && name.size() > 1 && name.find('.') == name.npos;
    if (!isAlias) return {};
    if (levels_.size() == 1 && isDefinition()) {
      defined_ = &aliases_[name];
      return {};
    }
    const auto found = aliases_.find(name);
    // The parser reports a use of an alias inside its own definition.
    if (found == aliases_.end() || &found->second == defined_) return {};
    return skipChecked(0, found->second + 1);
  }

  bool isDefinition() const {
    const size_t next = text_.find_first_not_of(" \t\r\n", at_);
    return next != text_.npos && text_[next] == '=';
  }

  // The depth is the number of open brackets plus `hidden`, the depth of an alias that is used here. All text
  // up to the next definition counts as part of the last defined alias, because only the parser knows where a
  // definition ends.
  Status skipChecked(size_t bytes, int hidden) {
    const int depth = static_cast<int>(levels_.size()) - 1 + hidden;
    if (defined_ != nullptr) *defined_ = std::max(*defined_, depth);
    if (depth > kMaxMlirDepth) return fail(at_, fmt::format("nested deeper than {}", kMaxMlirDepth));
    return skip(bytes);
  }

  const std::string_view text_;
  const std::string_view file_;
  const int64_t firstLine_;
  size_t at_ = 0;
  std::vector<Level> levels_ = {{}};
  std::map<std::string_view, int> aliases_;  // the nesting depth of each one
  int* defined_ = nullptr;
};

}  // namespace

Status checkMlirText(std::string_view text, std::string_view file, std::string_view marker) {
  int64_t line = 1;
  for (;;) {
    size_t end = marker.empty() ? text.npos : text.find(marker);
    // so MLIR's tools look for the marker
    while (end != text.npos && text.substr(end + marker.size()).starts_with('0'))
      end = text.find(marker, end + 1);
    const std::string_view chunk = text.substr(0, end);
    if (Status status = Scanner(chunk, file, line).run(); !status) return status;
    if (end == text.npos) return {};
    line += std::ranges::count(chunk, '\n');
    text.remove_prefix(end + marker.size());
  }
}

}  // namespace sluice
