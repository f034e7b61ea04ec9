// The encoding of each place where a layer has numbers, and which of them go together.
//
// Pure functions. Errors name the place, what was found and what was expected.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "runtime/base/encoding.h"
#include "runtime/base/expected.h"

namespace sluice {

// All point into kEncodings.
struct Encodings {
  const Encoding* weights = &kBf16;  // of products, in memory; those that are trained are always bf16
  std::map<std::string, const Encoding*, std::less<>> single;  // by a weight's name, instead of `weights`
  const Encoding* trained = &kBf16;  // weights that are bf16 in memory, where they are multiplied
  const Encoding* rows = &kBf16;     // what weights multiply
  const Encoding* grads = &kBf16;    // rows of gradients, likewise
  const Encoding* sent = &kBf16;     // tokens on their way to the ranks of their experts
  bool keepsBf16 = false;            // rows that a backward reads, which otherwise are kept as `rows` says

  // What the weight of that name is stored as.
  const Encoding& ofWeight(std::string_view name) const;
  // Whether some weight has codes.
  bool hasCodes() const;
  friend bool operator==(const Encodings&, const Encodings&) = default;
};

// Reads PLACE=ENCODING,... with the places weights, trained, rows, grads, kept and sent, and weights.NAME for
// the weight of that name, whatever is said of weights; later ones count. An encoding without a place applies
// to weights if it is an encoding of weights in memory, else to trained weights, rows and gradients. An empty
// text: all are bf16.
Expected<Encodings> parseEncodings(std::string_view text);

// The shortest text for them, the same for the same encodings.
std::string printEncodings(const Encodings& encodings);

// How the option --NAME of earlier versions is spelled now: the value of --encode, or several that say it. A
// flag's value does not count. Empty: there was no such option or value.
std::string spelledNow(std::string_view name, std::string_view value);

}  // namespace sluice
