// Shapes of the programs that mutation tests damage: small enough to run thousands, with several slots,
// windows, tiles and ranks.
#pragma once

#include "tests/testing/moe_program.h"

namespace sluice {

struct MutationShapes {
  MoeShape two, three;  // ranks
  MoeShape grouped;     // slots
  MoeShape uneven;      // ranks with different numbers of experts
  MoeShape few;         // some ranks own no expert
  MoeShape shared;      // both ranks own all experts
  MoeShape alone;       // one rank, which copies no rows
  MoeShape aloneGrouped;
  MoeShape mesh;  // pairs of ranks share experts and have the same tokens
};

inline MutationShapes mutationShapes() {
  MutationShapes shapes;
  MoeShape& two = shapes.two;
  two.ranks = 2;
  two.hidden = 20;
  two.intermediate = 6;
  two.maxTokens = 40;
  two.window = 2;
  two.tileN = 8;
  two.tileM = 8;
  MoeShape& three = shapes.three = two;
  three.ranks = 3;
  three.experts = 3;
  three.topK = 3;
  three.hidden = 34;
  three.cores = 1;
  three.window = 3;
  three.tokenSlot = 5;
  shapes.grouped = two;
  shapes.grouped.groupSlots = 2;
  shapes.grouped.weightsAct = true;
  shapes.uneven = two;
  shapes.uneven.experts = 5;
  shapes.uneven.sumLast = true;
  shapes.few = three;
  shapes.few.experts = 2;
  shapes.few.topK = 2;
  shapes.shared = two;
  shapes.shared.tp = 2;
  shapes.alone = two;
  shapes.alone.ranks = 1;
  shapes.alone.inPlace = true;
  shapes.aloneGrouped = shapes.alone;
  shapes.aloneGrouped.groupSlots = 2;
  shapes.aloneGrouped.fused = true;
  shapes.aloneGrouped.weightsAct = true;
  shapes.mesh = three;
  shapes.mesh.ranks = 4;
  shapes.mesh.tp = 2;
  shapes.mesh.sameTokens = true;
  return shapes;
}

}  // namespace sluice
