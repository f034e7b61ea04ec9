// Programs that send tokens to the ranks of their experts and back, with the entries and tensors of
// graphs/exchange/pairs.json, made by hand: rows of bf16 or float32, with probabilities beside them, which
// the caller gets and gives.
//
// buildExchangeProgram() gives a program that verify() accepts. Free function on values.
#pragma once

#include <cstdint>

#include "runtime/program/program.h"

namespace sluice {

struct ExchangeShape {
  bool isFloat = true;  // rows of float32, else of bf16
  int32_t ranks = 2;
  int32_t experts = 4;
  int32_t topK = 2;
  int32_t hidden = 9;
  int32_t maxTokens = 40;
  int32_t cores = 3;
  int32_t window = 2;
  int32_t slotRows = 16;
  int32_t tokenSlot = 8;
};

TaskProgram buildExchangeProgram(const ExchangeShape& shape);

}  // namespace sluice
