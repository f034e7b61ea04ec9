// Decision: what the compiler chose and why (sluicec --explain).
//
// Value type.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// The sizes that a decision about the whole program can concern, as bits.
enum DecidedSize : uint8_t {
  kDecidedRows = 1,      // rows per slot
  kDecidedTokens = 2,    // tokens per slot
  kDecidedColumns = 4,   // columns per tile of a product
  kDecidedGradTile = 8,  // size of a tile of a weight gradient
  kDecidedAllSizes = 15,
};

struct Decision {
  std::string node;        // the node or family that it concerns; empty: the whole program
  std::string what;        // "slot of 128 rows"
  std::string why;         // "2.31 ms; next best 160 rows, 2.40 ms"
  std::string entry = {};  // entry of the node; empty: any entry that has it
  uint8_t sizes = 0;       // bits of DecidedSize: the decision is shown for nodes that are cut by one of them
  friend bool operator==(const Decision&, const Decision&) = default;
};

}  // namespace sluice
