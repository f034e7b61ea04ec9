// The functions of sluice.h on contexts at one rank: what runs give, and what is refused.
#include <catch2/catch.hpp>
#include <utility>

#include "tests/runtime/api/c_layer.h"
#include "tests/testing/packed_regions.h"

namespace sluice {
namespace {

using Catch::Matchers::Contains;

// One rank with everything bound.
struct OneRank {
  explicit OneRank(const MoeShape& shape = {}, int64_t tokens = 40)
      : program(loadLayer(shape)),
        transport(std::move(threadsOf(1)[0])),
        data(makeLayerData(buildMoeProgram(shape), {.tokens = {.counts = {tokens}}})),
        context(contextOf(program, transport)) {
    REQUIRE(context);
    REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  }
  sluice_status run(const char* entry, uint32_t saved = 0) {
    return sluice_context_run(context.get(), entry, saved);
  }
  const char* error() const { return sluice_context_error(context.get()); }

  Handle<sluice_program> program;
  Handle<sluice_transport> transport;
  LayerData data;
  Handle<sluice_context> context;
};

TEST_CASE("a context is refused with what is wrong") {
  const Handle<sluice_program> program = loadLayer({});
  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]), other = std::move(threadsOf(1)[0]);
  auto* context = reinterpret_cast<sluice_context*>(8);
  CHECK(sluice_context_create(nullptr, alone.get(), nullptr, &context) == SLUICE_ERROR_ARGUMENT);
  CHECK(context == nullptr);
  CHECK(sluice_context_create(program.get(), nullptr, nullptr, &context) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_create(program.get(), alone.get(), nullptr, nullptr) == SLUICE_ERROR_ARGUMENT);
  const auto create = [&](auto change) {
    sluice_context_options options{};
    options.size = sizeof options;
    change(options);
    const sluice_status status = sluice_context_create(program.get(), alone.get(), &options, &context);
    CHECK(context == nullptr);
    return status;
  };
  CHECK(create([](auto& options) { options.size = 4; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(create([](auto& options) { options.pinning = 7; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(create([](auto& options) { options.executor = -1; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(create([](auto& options) { options.packed_bytes = -2; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(create([](auto& options) { options.threads = -1; }) == SLUICE_ERROR_FAILED);
  CHECK(create([](auto& options) { options.timeout_seconds = -1; }) == SLUICE_ERROR_FAILED);
  sluice_workspace* elsewhere = nullptr;
  REQUIRE(sluice_workspace_create(other.get(), nullptr, &elsewhere) == SLUICE_OK);
  const Handle<sluice_workspace> owned(elsewhere);
  CHECK(create([&](auto& options) { options.workspace = elsewhere; }) == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("another transport"));
  CHECK(sluice_transport_is_aborted(alone.get()) == 0);

  const Handle<sluice_program> two = loadLayer({.ranks = 2});
  CHECK(sluice_context_create(two.get(), alone.get(), nullptr, &context) == SLUICE_ERROR_ABORTED);
  CHECK_THAT(sluice_last_error(), Contains("2 ranks"));
  CHECK(sluice_transport_is_aborted(alone.get()) == 1);
}

TEST_CASE("a device is found by its name, at a rank alone, and CPU threads have no streams") {
  const Handle<sluice_program> program = loadLayer({});
  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  const auto statuses = [](sluice_transport* transport, const char* device) {
    sluice_workspace_options options{};
    options.size = sizeof options;
    options.device = device;
    sluice_workspace* workspace = nullptr;
    const sluice_status status = sluice_workspace_create(transport, &options, &workspace);
    CHECK((workspace != nullptr) == (status == SLUICE_OK));
    sluice_workspace_free(workspace);
    return status;
  };
  CHECK(statuses(alone.get(), "cpu") == SLUICE_OK);
  CHECK(statuses(alone.get(), "gpu") == SLUICE_ERROR_ARGUMENT);
  CHECK_THAT(sluice_last_error(), Contains("device 'gpu': expected cpu, cuda or cuda:N"));
  CHECK(statuses(alone.get(), "cuda:1000") == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_last_error(), Contains("device 'cuda:1000': "));
  const auto two = threadsOf(2);
  CHECK(statuses(two[0].get(), "cuda") == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_last_error(), Contains("device 'cuda': found 2 ranks, expected a rank alone"));

  sluice_context_options options{};
  options.size = sizeof options;
  options.device = "cuda:1000";
  sluice_context* context = nullptr;
  CHECK(sluice_context_create(program.get(), alone.get(), &options, &context) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_last_error(), Contains("device 'cuda:1000': "));
  // a caller of an older version, whose structure ends before the device
  options.size = offsetof(sluice_context_options, device);
  REQUIRE(sluice_context_create(program.get(), alone.get(), &options, &context) == SLUICE_OK);
  const Handle<sluice_context> owned(context);
  CHECK(sluice_context_set_stream(context, &options) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_context_error(context), Contains("found a stream for CPU threads, expected none"));
  CHECK(sluice_context_set_stream(context, nullptr) == SLUICE_OK);
  CHECK(sluice_context_set_stream(nullptr, nullptr) == SLUICE_ERROR_ARGUMENT);
}

TEST_CASE("a tensor is refused with its name and what is wrong, and runs say so until it is bound") {
  OneRank rank;
  sluice_context* const context = rank.context.get();
  const auto bind = [&](const char* name, auto change) {
    sluice_tensor tensor = tensorOf(rank.data.inputs[0].at("x"));
    change(tensor);
    return sluice_context_bind(context, name, &tensor);
  };
  const auto same = [](sluice_tensor&) {};
  CHECK(sluice_context_bind(context, "x", nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind(nullptr, same) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind("z", same) == SLUICE_ERROR_FAILED);
  CHECK_THAT(rank.error(), Contains("'z'"));
  CHECK(rank.error() == std::string(sluice_last_error()));
  CHECK(bind("x", [](auto& t) { t.size = 0; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind("x", [](auto& t) { t.type = 9; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind("x", [](auto& t) { t.type = SLUICE_F32; }) == SLUICE_ERROR_FAILED);
  CHECK_THAT(rank.error(), Contains("F32") && Contains("expected BF16"));
  CHECK(bind("x", [](auto& t) { t.dim_count = 1; }) == SLUICE_ERROR_FAILED);
  CHECK(bind("x", [](auto& t) { t.dim_count = -1; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind("x", [](auto& t) { t.dim_count = 1 << 30; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind("x", [](auto& t) { t.dims = nullptr; }) == SLUICE_ERROR_ARGUMENT);
  CHECK(bind("x", [](auto& t) { t.data = nullptr; }) == SLUICE_ERROR_FAILED);
  CHECK(bind("x", [](auto& t) { t.flags = 2; }) == SLUICE_ERROR_ARGUMENT);
  const int64_t wide[2] = {40, 33}, many[2] = {65, 32}, negative[2] = {-1, 32};
  for (const int64_t* dims : {wide, many, negative})
    CHECK(bind("x", [&](auto& t) { t.dims = dims; }) == SLUICE_ERROR_FAILED);
  const std::string last = rank.error();
  CHECK_THAT(last, Contains("[-1, 32]"));
  CHECK(rank.run("forward") == SLUICE_ERROR_FAILED);  // and not with what was bound before
  CHECK(rank.error() == last);
  CHECK(bind("x", same) == SLUICE_OK);
  CHECK(rank.run("forward") == SLUICE_OK);
}

TEST_CASE("a run that is refused leaves the context usable") {
  OneRank rank;
  CHECK(rank.error() == std::string());
  CHECK(rank.run("sideways") == SLUICE_ERROR_FAILED);
  CHECK_THAT(rank.error(), Contains("'sideways'") && Contains("forward, backward"));
  CHECK(rank.run(nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(rank.run("forward", SLUICE_SAVED_LAST + 1) == SLUICE_ERROR_ARGUMENT);
  CHECK(rank.run("backward") == SLUICE_ERROR_FAILED);  // nothing is saved yet
  auto* ids = rank.data.inputs[0].at("expert_ids").as<int32_t>();
  const int32_t good = std::exchange(ids[3], 99);
  CHECK(rank.run("forward") == SLUICE_ERROR_FAILED);
  CHECK_THAT(rank.error(), Contains("99"));
  ids[3] = good;
  CHECK(rank.run("forward") == SLUICE_OK);
  CHECK(rank.run("backward") == SLUICE_OK);
  checkOutputs(rank.data);

  const Handle<sluice_context> unbound = contextOf(rank.program, rank.transport);
  CHECK(sluice_context_run(unbound.get(), "forward", 0) == SLUICE_ERROR_FAILED);
  CHECK_THAT(sluice_context_error(unbound.get()), Contains("not bound"));
}

TEST_CASE("statistics are of the last run, and constant weights are packed once") {
  OneRank rank;
  sluice_stats stats{};
  CHECK(sluice_context_get_stats(nullptr, &stats) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_get_stats(rank.context.get(), nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_get_stats(rank.context.get(), &stats) == SLUICE_ERROR_ARGUMENT);
  stats.size = sizeof stats;
  REQUIRE(sluice_context_get_stats(rank.context.get(), &stats) == SLUICE_OK);
  CHECK(stats.tasks == 0);
  for (const char* name : {"gate_up_weight", "down_weight"}) {
    sluice_tensor weight = tensorOf(rank.data.inputs[0].at(name));
    weight.flags = SLUICE_CONSTANT;
    REQUIRE(sluice_context_bind(rank.context.get(), name, &weight) == SLUICE_OK);
  }
  REQUIRE(rank.run("forward") == SLUICE_OK);
  REQUIRE(sluice_context_get_stats(rank.context.get(), &stats) == SLUICE_OK);
  CHECK(stats.rows == 80);
  CHECK(stats.tasks > 0);
  CHECK(stats.run_seconds > 0);
  CHECK(stats.packed_bytes > 0);
  CHECK(stats.saved_bytes >= 0);

  int32_t rows[4] = {}, count = 0;
  CHECK(sluice_context_expert_rows(nullptr, rows, 4, &count) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_expert_rows(rank.context.get(), rows, 4, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_expert_rows(rank.context.get(), rows, 3, &count) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_expert_rows(rank.context.get(), nullptr, 4, &count) == SLUICE_ERROR_ARGUMENT);
  REQUIRE(sluice_context_expert_rows(rank.context.get(), rows, 4, &count) == SLUICE_OK);
  CHECK(count == 4);
  CHECK(rows[0] + rows[1] + rows[2] + rows[3] == 80);
}

TEST_CASE("an output of rows is looked at in the context's memory") {
  TaskProgram tables = spreadRegions(buildMoeProgram({.forwardOnly = true}));
  uint32_t shown = 0;
  while (tables.buffers[shown].role != Role::kTemp || tables.buffers[shown].shape.size() != 2 ||
         tables.buffers[shown].shape[0].extent != Extent::kRows)
    ++shown;
  tables.buffers[shown].role = Role::kOutput;
  const std::string name = tables.buffers[shown].name;
  const Handle<sluice_program> program = loadBytes(encode(tables));
  REQUIRE(program);
  uint32_t index = 0;
  sluice_tensor_info info{};
  info.size = sizeof info;
  REQUIRE(sluice_program_find_tensor(program.get(), name.c_str(), &index) == SLUICE_OK);
  REQUIRE(sluice_program_get_tensor(program.get(), index, &info) == SLUICE_OK);
  CHECK(info.owned == 1);
  CHECK(info.shape[1] == 'R');

  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  const Handle<sluice_context> context = contextOf(program, alone);
  LayerData data = makeLayerData(tables, {.tokens = {.counts = {30}}});
  for (auto* tensors : {&data.inputs[0], &data.outputs[0]})
    for (auto& [bound, tensor] : *tensors) {
      const sluice_tensor view = tensorOf(tensor);
      (void)sluice_context_bind(context.get(), bound.c_str(), &view);  // not all are in this program
    }
  sluice_tensor rows{};
  CHECK(sluice_context_output(context.get(), name.c_str(), &rows) == SLUICE_ERROR_ARGUMENT);
  rows.size = sizeof rows;
  CHECK(sluice_context_output(context.get(), name.c_str(), &rows) == SLUICE_ERROR_FAILED);
  REQUIRE(sluice_context_run(context.get(), "forward", 0) == SLUICE_OK);
  REQUIRE(sluice_context_output(context.get(), name.c_str(), &rows) == SLUICE_OK);
  REQUIRE(rows.dim_count == 2);
  CHECK(rows.dims[0] == 60);
  CHECK(rows.dims[1] == info.dims[1].size);
  CHECK(rows.type == SLUICE_BF16);
  CHECK(rows.data != nullptr);
  CHECK(sluice_context_output(context.get(), "y", &rows) == SLUICE_ERROR_FAILED);
  CHECK(sluice_context_output(context.get(), nullptr, &rows) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_output(nullptr, "y", &rows) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_output(context.get(), name.c_str(), nullptr) == SLUICE_ERROR_ARGUMENT);
}

TEST_CASE("the serial executor, and calls on no context") {
  const Handle<sluice_program> program = loadLayer({});
  const Handle<sluice_transport> alone = std::move(threadsOf(1)[0]);
  LayerData data = makeLayerData(buildMoeProgram({}), {.tokens = {.counts = {20}}});
  sluice_context_options options{};
  options.size = sizeof options;
  options.executor = SLUICE_SERIAL;
  options.packed_bytes = -1;
  options.pack_each_step = 1;
  sluice_context* made = nullptr;
  REQUIRE(sluice_context_create(program.get(), alone.get(), &options, &made) == SLUICE_OK);
  const Handle<sluice_context> context(made);
  REQUIRE(bindLayer(made, data, 0) == SLUICE_OK);
  CHECK(sluice_context_run(made, "forward", 0) == SLUICE_OK);
  CHECK(sluice_context_run(made, "backward", 0) == SLUICE_OK);
  checkOutputs(data);

  const sluice_tensor view = tensorOf(data.inputs[0].at("x"));
  CHECK(sluice_context_bind(nullptr, "x", &view) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_run(nullptr, "forward", 0) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_error(nullptr) == std::string("context is null"));
  sluice_context_free(nullptr);
}

}  // namespace
}  // namespace sluice
