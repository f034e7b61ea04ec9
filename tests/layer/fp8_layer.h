// The layers of tests of FP8: sizes that are whole blocks, rows that are ragged. Header only; values.
#pragma once

#include <string>
#include <vector>

#include "tests/layer/graph_run.h"

namespace sluice {

struct Fp8Shape {
  int ranks = 1, tp = 1, experts = 8, topK = 2, hidden = 160;
};

// On one rank, on 3, and on 4 of which 2 share experts.
inline const std::vector<Fp8Shape> kFp8Shapes = {
    {}, {.ranks = 3, .experts = 7, .topK = 3}, {.ranks = 4, .tp = 2}};

// MXFP8, everything trained.
inline CompileOptions fp8Options(const Fp8Shape& s) {
  CompileOptions options{.sets = {{"ep", s.ranks / s.tp},
                                  {"tp", s.tp},
                                  {"experts", s.experts},
                                  {"top_k", s.topK},
                                  {"hidden", s.hidden},
                                  {"intermediate", 192},
                                  {"max_tokens", 128}},
                         .cores = 3,
                         .slotRows = 48};
  options.trainable = std::vector<std::string>{"all"};
  options.encode = "mxfp8";
  return options;
}

// Skewed; rank 1 has no tokens.
inline LayerData fp8Data(const Fp8Shape& s, const Program& program) {
  tools::InputsSpec spec{.tokens = {.counts = {}}, .routing = {tools::RoutingKind::kZipf, 1.3}, .seed = 4};
  for (int rank = 0; rank < s.ranks; ++rank) spec.tokens.counts.push_back(rank == 1 ? 0 : 101 - 13 * rank);
  return makeGraphData(program, spec);
}

}  // namespace sluice
