// The program of docs/SCHEDULE.md for any shape, built without the compiler: runtime tests run it.
//
// Entries `forward` and `backward` of one MoE-FFN layer, with the families, events, lanes, priorities and
// rotations of the table there, or with fused families. Backward uses the routing of forward. Every program
// passes verify() if the shape keeps the limits of program.h and slotRows is a multiple of 16.
#pragma once

#include "runtime/program/program.h"

namespace sluice {

struct MoeShape {
  int ranks = 1;
  int experts = 4;  // of all ranks
  int topK = 2;
  int hidden = 32;
  int intermediate = 24;
  int maxTokens = 64;
  int cores = 3;
  int slotRows = 16;  // rows per slot of space rows
  int tokenSlot = 8;  // tokens per slot of space tokens
  int window = 4;     // slots per window of all spaces except experts, which has 1
  int tileN = 16;
  int tileM = 16;
  bool fused = false;        // activation and its gradient in the task of the gmm before them
  bool forwardOnly = false;  // no entry `backward`; with fused, gate_up is not stored
  int groupSlots = 0;        // products work on groups of this many slots; 0: all work on slots
  bool sumLast = false;      // the sum of backward waits for a weight gradient of all experts of its rank
  int tp = 1;                // ranks of a group, which share its experts; `intermediate` is that of one rank
  bool sameTokens = false;   // the ranks of a group have the same tokens
  bool inPlace = false;      // of one rank: rows are gathered from tokens, and summed where they are
  // The activation's gradient gives down_weight_grad weighted rows; else that scales them, as in programs
  // before format 1.11.
  bool weightsAct = false;
  ActivationKind activation = ActivationKind::kSwiglu;
  float limit = 0;
};

TaskProgram buildMoeProgram(const MoeShape& shape);

}  // namespace sluice
