#include "runtime/program/text_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/one_line.h"

namespace sluice::text {
namespace {

constexpr size_t kShownBytes = 40;

std::string describe(const Token& token) {
  if (token.kind == Token::Kind::kEnd) return "the end of the text";
  if (token.kind == Token::Kind::kInvalid) return token.value;
  const bool isLong = token.text.size() > kShownBytes;
  return fmt::format("'{}{}'", token.text.substr(0, kShownBytes), isLong ? "..." : "");
}

}  // namespace

Cursor::Cursor(std::string_view source, std::string_view name) : name_(name), lexer_(source) { take(); }

Token Cursor::take() { return std::exchange(token_, error_ ? Token{} : lexer_.next()); }

void Cursor::failAt(const Token& token, std::string_view message) {
  if (!error_) error_ = Error{oneLine(fmt::format("{}:{}:{}: {}", name_, token.line, token.column, message))};
  token_ = Token{};
}

void Cursor::failExpected(std::string_view expected) {
  failAt(token_, fmt::format("found {}, expected {}", describe(token_), expected));
}

bool Cursor::accept(std::string_view word) {
  if (!token_.isWord(word)) return false;
  take();
  return true;
}

bool Cursor::acceptMark(char mark) {
  if (!token_.isMark(mark)) return false;
  take();
  return true;
}

void Cursor::expect(std::string_view word) {
  if (!accept(word)) failExpected(fmt::format("'{}'", word));
}

void Cursor::expectMark(char mark) {
  if (!acceptMark(mark)) failExpected(fmt::format("'{}'", mark));
}

std::string Cursor::name(std::string_view what) {
  if (token_.kind != Token::Kind::kWord && token_.kind != Token::Kind::kString) return failExpected(what), "";
  return take().value;
}

float Cursor::decimal(std::string_view what) {
  if (token_.text.starts_with("0x")) return std::bit_cast<float>(number<uint32_t>(what));
  const char* end = token_.text.data() + token_.text.size();
  float value = 0;
  const auto [rest, failure] = std::from_chars(token_.text.data(), end, value);
  if (token_.kind != Token::Kind::kNumber || rest != end || failure != std::errc()) {
    failExpected(fmt::format("{} that a float can hold", what));
    return 0;
  }
  take();
  return value;
}

size_t Cursor::wordIndex(const Words& words, std::string_view what) {
  const auto found = std::find(words.begin(), words.end(), token_.text);
  if (token_.kind == Token::Kind::kWord && found != words.end()) {
    take();
    return static_cast<size_t>(found - words.begin());
  }
  std::string list;
  for (const std::string& word : words) list += fmt::format("{}{}", list.empty() ? "" : ", ", word);
  failExpected(fmt::format("{}: one of {}", what, list));
  return 0;
}

}  // namespace sluice::text
