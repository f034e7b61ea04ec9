// Writes the program of docs/SCHEDULE.md for tests of the tools, without the compiler.
// usage: make_program OUT RANKS EXPERTS TOP_K HIDDEN INTERMEDIATE MAX_TOKENS CORES
#include <cstdio>
#include <cstdlib>

#include "runtime/program/codec.h"
#include "tests/testing/moe_program.h"

int main(int argc, char** argv) {
  if (argc != 9) return 2;
  sluice::MoeShape shape;
  shape.weightsAct = true;  // as the compiler makes it, so that it also runs on a GPU
  int* const fields[] = {&shape.ranks,        &shape.experts,   &shape.topK, &shape.hidden,
                         &shape.intermediate, &shape.maxTokens, &shape.cores};
  for (int i = 0; i < 7; ++i) *fields[i] = std::atoi(argv[2 + i]);
  const sluice::Status status = sluice::writeProgram(sluice::buildMoeProgram(shape), argv[1]);
  if (!status) std::fprintf(stderr, "make_program: error: %s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
