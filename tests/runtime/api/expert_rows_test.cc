// What a context reports about the routing of its last run.
#include <catch2/catch.hpp>

#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {

TEST_CASE("a context tells how many rows each of its experts got") {
  MoeShape shape;
  shape.ranks = 2;
  shape.experts = 5;
  const auto program = Program::fromTaskProgram(buildMoeProgram(shape));
  REQUIRE(program.ok());
  tools::InputsSpec spec;
  spec.seed = 3;
  spec.tokens.counts = {40, 13};
  LayerData data = makeLayerData(program->tables(), spec);
  std::vector<std::vector<int32_t>> found(2), expected = {{0, 0, 0}, {0, 0}};
  for (int rank = 0; rank < 2; ++rank) {
    const auto ids = data.inputs[rank].at("expert_ids").as<int32_t>();
    for (int64_t i = 0; i < data.tokens[rank] * shape.topK; ++i)
      if (ids[i] >= 0) ++(ids[i] < 3 ? expected[0][ids[i]] : expected[1][ids[i] - 3]);
  }
  const auto ran = runRanks(*program, {}, [&](int rank, Context& context) -> Status {
    if (!context.expertRows().empty()) return Error{"rows before the first run"};
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (Status forward = context.run("forward"); !forward) return forward;
    found[rank] = context.expertRows();
    return {};
  });
  for (const Status& status : ran) {
    INFO((status ? "" : status.error().message));
    REQUIRE(status.ok());
  }
  CHECK(found == expected);
}

}  // namespace sluice
