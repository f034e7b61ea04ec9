// Cuts the text form of a program into tokens.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::text {

struct Token {
  enum class Kind { kWord, kNumber, kString, kMark, kEnd, kInvalid };

  Kind kind = Kind::kEnd;
  std::string_view text;  // as in the source
  std::string value;      // kWord, kString: the name; kInvalid: what is wrong
  int line = 1;           // from 1
  int column = 1;         // from 1, in bytes

  bool isMark(char mark) const { return kind == Kind::kMark && text[0] == mark; }
  bool isWord(std::string_view word) const { return kind == Kind::kWord && text == word; }
};

// A word is a bare name (text_words.h), a number an optional '-', a digit and what follows it of letters,
// digits, '.' and the sign of an exponent, a string is in quotes on one line, a mark is one of [ ] { } ( ) ,
// : / = * #. Blanks separate; a comment is // to the end of the line. The source must outlive the tokens.
class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Token next();

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  void advance(size_t count);
  void skipBlanks();
  Token string(Token token);
  std::optional<char> escape();

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  int column_ = 1;
};

}  // namespace sluice::text
