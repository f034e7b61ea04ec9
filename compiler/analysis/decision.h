// Decision: what the compiler chose and why, for people who ask (sluicec --explain).
//
// Value type.
#pragma once

#include <string>

namespace sluice {

struct Decision {
  std::string node;        // which node or family it is about; empty: the whole program
  std::string what;        // "slot of 128 rows"
  std::string why;         // "2.31 ms; next best 160 rows, 2.40 ms"
  std::string entry = {};  // of the node; empty: any that has it
  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace sluice
