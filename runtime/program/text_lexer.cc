#include "runtime/program/text_lexer.h"

#include <fmt/format.h>

#include <charconv>

#include "runtime/program/text_words.h"

namespace sluice::text {
namespace {

using Kind = Token::Kind;

}  // namespace

void Lexer::advance(size_t count) {
  for (; count > 0 && at_ < source_.size(); --count, ++at_) {
    if (source_[at_] == '\n') {
      ++line_;
      column_ = 1;
    } else {
      ++column_;
    }
  }
}

void Lexer::skipBlanks() {
  while (at_ < source_.size()) {
    const char c = peek();
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      advance(1);
    } else if (c == '/' && peek(1) == '/') {
      while (at_ < source_.size() && peek() != '\n') advance(1);
    } else {
      return;
    }
  }
}

Token Lexer::next() {
  skipBlanks();
  Token token{.kind = Kind::kEnd, .text = {}, .value = {}, .line = line_, .column = column_};
  if (at_ >= source_.size()) return token;
  const char first = peek();
  if (first == '"') return string(std::move(token));

  size_t length = 1;
  const bool isNumber = isDigit(first) || (first == '-' && isDigit(peek(1)));
  if (isNumber || isWordStart(first)) {
    token.kind = isNumber ? Kind::kNumber : Kind::kWord;
    const bool isDecimal = isNumber && !(first == '0' && peek(1) == 'x');
    const auto isExponentSign = [&] {
      return isDecimal && peek(length - 1) == 'e' && (peek(length) == '-' || peek(length) == '+');
    };
    while (isWordPart(peek(length)) || isExponentSign()) ++length;
  } else if (std::string_view("[]{}(),:/=*#").find(first) != std::string_view::npos) {
    token.kind = Kind::kMark;
  } else {
    token.kind = Kind::kInvalid;
    token.value = fmt::format("byte 0x{:02x}", static_cast<unsigned char>(first));
  }
  token.text = source_.substr(at_, length);
  if (token.kind == Kind::kWord) token.value = token.text;
  advance(length);
  return token;
}

Token Lexer::string(Token token) {
  const size_t begin = at_;
  const auto finish = [&](Kind kind) {
    token.kind = kind;
    token.text = source_.substr(begin, at_ - begin);
    return std::move(token);
  };
  for (advance(1); peek() != '"'; advance(1)) {
    if (at_ >= source_.size() || peek() == '\n') {
      token.value = "a string without its closing quote";
      return finish(Kind::kInvalid);
    }
    if (peek() != '\\') {
      token.value += peek();
      continue;
    }
    advance(1);
    const std::optional<char> c = escape();
    if (!c) {
      token.value = "an unknown escape in a string";
      return finish(Kind::kInvalid);
    }
    token.value += *c;
  }
  advance(1);
  return finish(Kind::kString);
}

// At the character after the backslash; ends at the last one of the escape.
std::optional<char> Lexer::escape() {
  switch (peek()) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'x':
      break;
    default:
      return std::nullopt;
  }
  if (at_ + 2 >= source_.size()) return std::nullopt;
  const char* digits = source_.data() + at_ + 1;
  unsigned value = 0;
  if (std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2) return std::nullopt;
  advance(2);
  return static_cast<char>(value);
}

}  // namespace sluice::text
