// Decision: what the compiler chose and why (sluicec --explain).
//
// Value type.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// The sizes that a decision about the whole program may be about; they add up.
enum DecidedSize : uint8_t {
  kDecidedRows = 1,      // of a slot of rows
  kDecidedTokens = 2,    // of a slot of tokens
  kDecidedColumns = 4,   // of a tile of a product
  kDecidedGradTile = 8,  // of a tile of a weight gradient
  kDecidedAllSizes = 15,
};

struct Decision {
  std::string node;        // which node or family it is about; empty: the whole program
  std::string what;        // "slot of 128 rows"
  std::string why;         // "2.31 ms; next best 160 rows, 2.40 ms"
  std::string entry = {};  // of the node; empty: any that has it
  uint8_t sizes = 0;       // of DecidedSize: this decision is shown for nodes cut by one of them
  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace sluice
