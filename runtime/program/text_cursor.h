// Reads the tokens of a text one by one and keeps the first error.
//
// After an error every token is the end of the text, so that a parser built on it needs no error path of its
// own: all its loops stop at the end.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/program/text_lexer.h"
#include "runtime/program/text_words.h"

namespace sluice::text {

class Cursor {
 public:
  // `name` is the file's name in messages.
  Cursor(std::string_view source, std::string_view name);

  const Token& token() const { return token_; }
  bool atEnd() const { return token_.kind == Token::Kind::kEnd; }
  const std::optional<Error>& error() const { return error_; }
  Token take();

  // At a token: "NAME:3:7: found X, expected Y"; at the current one if no token is given.
  void failExpected(std::string_view expected);
  void failAt(const Token& token, std::string_view message);

  // Takes the token if it is this one.
  bool accept(std::string_view word);
  bool acceptMark(char mark);

  void expect(std::string_view word);
  void expectMark(char mark);

  // A name, bare or in quotes.
  std::string name(std::string_view what);

  // A number that T can hold.
  template <class T>
  T number(std::string_view what);

  // A decimal number that a float can hold, or "0x" and its bits.
  float decimal(std::string_view what);

  // The value of an enum by its word.
  template <class E>
  E word(std::string_view what) {
    return static_cast<E>(wordIndex(listWords(E{}), what));
  }

 private:
  // The index of the word that the token is; 0 after an error.
  size_t wordIndex(const Words& words, std::string_view what);

  std::string_view name_;
  Lexer lexer_;
  Token token_;
  std::optional<Error> error_;
};

template <class T>
T Cursor::number(std::string_view what) {
  if (token_.kind != Token::Kind::kNumber) return failExpected(what), T{};
  const bool hex = token_.text.starts_with("0x");
  const char* begin = token_.text.data() + (hex ? 2 : 0);
  const char* end = token_.text.data() + token_.text.size();
  T value{};
  const auto [rest, failure] = std::from_chars(begin, end, value, hex ? 16 : 10);
  if (rest != end || failure != std::errc()) {
    const char* sign = static_cast<T>(-1) < T{} ? "" : "unsigned ";
    const std::string type = std::string(sign) + std::to_string(8 * sizeof(T)) + " bits";
    return failExpected(std::string(what) + " of " + type), T{};
  }
  take();
  return value;
}

}  // namespace sluice::text
