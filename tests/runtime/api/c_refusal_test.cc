// Through the C interface: a step that one rank refuses fails at all ranks with its message, and the next
// step is right.
#include <cstring>
#include <functional>
#include <limits>

#include "tests/runtime/api/c_layer.h"

namespace sluice {
namespace {

constexpr int kRanks = 2;
const MoeShape kShape{.ranks = kRanks};

LayerData layerData() {
  return makeLayerData(buildMoeProgram(kShape), {.tokens = {.counts = {30, 21}}, .seed = 1});
}

// The status of a call, and its message, "" if it succeeded.
struct Answer {
  sluice_status status = SLUICE_OK;
  std::string message;
};

// The two ways to request a step.
Answer ask(sluice_context* context, bool submits, const char* entry, uint32_t saved = 0) {
  Answer answer;
  if (!submits) {
    answer.status = sluice_context_run(context, entry, saved);
  } else {
    sluice_step* made = nullptr;
    answer.status = sluice_context_submit(context, entry, saved, &made);
    const Handle<sluice_step> step(made);
    if (answer.status == SLUICE_OK) answer.status = sluice_step_wait(step.get());
  }
  if (answer.status != SLUICE_OK) answer.message = sluice_last_error();
  return answer;
}

// A call for a step of `entry` that is refused.
struct Kind {
  std::string name;
  const char* entry;
  std::function<Answer(sluice_context*, LayerData&, int rank, bool submits)> call;
};

// With one tensor bound incorrectly; the error of that bind is ignored.
Kind bound(const char* entry, const std::string& tensor, const std::string& how,
           const std::function<void(sluice_tensor&, std::vector<int64_t>&)>& change) {
  return {tensor + " " + how, entry, [=](sluice_context* context, LayerData& data, int rank, bool submits) {
            auto& of = data.inputs[rank].contains(tensor) ? data.inputs[rank] : data.outputs[rank];
            std::vector<int64_t> dims = of.at(tensor).shape();
            sluice_tensor view = tensorOf(of.at(tensor));
            view.dims = dims.data();
            change(view, dims);
            static_cast<void>(sluice_context_bind(context, tensor.c_str(), &view));
            return ask(context, submits, entry);
          }};
}

Kind id(const std::string& how, size_t at, int32_t value) {
  return {"id " + how, "forward", [=](sluice_context* context, LayerData& data, int rank, bool submits) {
            int32_t* ids = data.inputs[rank].at("expert_ids").as<int32_t>();
            const int32_t before = ids[at];
            ids[at] = value;
            Answer answer = ask(context, submits, "forward");
            ids[at] = before;
            return answer;
          }};
}

std::vector<Kind> kinds() {
  using Dims = std::vector<int64_t>;
  const auto dim = [](size_t d, int64_t size) { return [=](sluice_tensor&, Dims& dims) { dims[d] = size; }; };
  const auto type = [](int32_t of) { return [=](sluice_tensor& view, Dims&) { view.type = of; }; };
  std::vector<Kind> all = {
      bound("forward", "x", "of another type", type(SLUICE_F32)),
      bound("forward", "x", "of no type", type(99)),
      bound("forward", "x", "of a negative type", type(-1)),
      bound("forward", "x", "too wide", dim(1, 33)),
      bound("forward", "x", "with too many tokens", dim(0, 65)),
      bound("forward", "x", "with a negative number of tokens", dim(0, -3)),
      bound("forward", "x", "with fewer tokens than others", dim(0, 2)),
      bound("forward", "x", "without size", [](sluice_tensor& view, Dims&) { view.size = 0; }),
      bound("forward", "x", "without dimensions", [](sluice_tensor& view, Dims&) { view.dims = nullptr; }),
      bound("forward", "x", "with 17 dimensions", [](sluice_tensor& view, Dims&) { view.dim_count = 17; }),
      bound("forward", "x", "with -1 dimensions", [](sluice_tensor& view, Dims&) { view.dim_count = -1; }),
      bound("forward", "x", "with unknown flags", [](sluice_tensor& view, Dims&) { view.flags = 8; }),
      bound("forward", "x", "between two elements",
            [](sluice_tensor& view, Dims&) { view.data = static_cast<char*>(view.data) + 1; }),
      bound("forward", "x", "without data", [](sluice_tensor& view, Dims&) { view.data = nullptr; }),
      bound("forward", "expert_ids", "of 64 bits", type(SLUICE_I64)),
      bound("forward", "expert_weights", "of other tokens", dim(0, 3)),
      bound("forward", "down_weight", "of too few experts", dim(0, 1)),
      bound("forward", "y", "float32", type(SLUICE_F32)),
      bound("backward", "dy", "of another type", type(SLUICE_F16)),
      bound("backward", "dy", "of other tokens than forward", dim(0, 9)),
      bound("backward", "dx", "with unknown flags", [](sluice_tensor& view, Dims&) { view.flags = ~0u; }),
      bound("backward", "gate_up_weight_grad", "too large", dim(2, 4096)),
      id("out of range", 3, 4),
      id("negative", 0, -2),
      id("of no range", 1, std::numeric_limits<int32_t>::max()),
  };
  for (const char* entry : {"forward", "backward"}) {
    const auto calls = [&](const char* name, const char* requested, uint32_t saved) {
      all.push_back({name, entry, [=](sluice_context* context, LayerData&, int, bool submits) {
                       return ask(context, submits, requested, saved);
                     }});
    };
    calls("an entry that is null", nullptr, 0);
    calls("an entry that is not there", "sideways", 0);
    calls("an entry without name", "", 0);
    calls("a saved set past the last", entry, 1024);
    calls("a saved set far past the last", entry, ~0u);
    all.push_back(
        {"a step that is null", entry, [=](sluice_context* context, LayerData&, int, bool) -> Answer {
           return {sluice_context_submit(context, entry, 0, nullptr), sluice_last_error()};
         }});
    all.push_back(
        {"a caller's own reason", entry, [](sluice_context* context, LayerData&, int, bool) -> Answer {
           const sluice_status refused = sluice_context_refuse(context, 0, "there is no batch left");
           return {refused == SLUICE_OK ? SLUICE_ERROR_FAILED : refused, "there is no batch left"};
         }});
    all.push_back(
        {"a reason that is null", entry, [](sluice_context* context, LayerData&, int, bool) -> Answer {
           return {sluice_context_refuse(context, 0, nullptr), "the step is refused"};
         }});
  }
  return all;
}

struct Outcome {
  std::vector<Answer> answers = std::vector<Answer>(kRanks);
  LayerData data = layerData();  // for the steps after it
  std::vector<sluice_status> after = std::vector<sluice_status>(kRanks);
};

// For one rank, in its thread: the first status that no test expects.
sluice_status runKinds(const std::vector<Kind>& all, sluice_context* context, int rank, int refusing,
                       bool submits, LayerData& data, std::vector<Outcome>& found) {
  for (size_t k = 0; k < all.size(); ++k) {
    if (sluice_status status = bindLayer(context, data, rank)) return status;
    if (std::strcmp(all[k].entry, "backward") == 0)
      if (sluice_status status = sluice_context_run(context, "forward", 0)) return status;
    found[k].answers[rank] =
        rank == refusing ? all[k].call(context, data, rank, submits) : ask(context, submits, all[k].entry);
    if (sluice_status status = bindLayer(context, found[k].data, rank)) return status;
    for (const char* entry : {"forward", "backward"})
      if (sluice_status status = sluice_context_run(context, entry, 0)) found[k].after[rank] = status;
  }
  return SLUICE_OK;
}

void checkAll(int refusing, bool submits, uint64_t expected) {
  const Handle<sluice_program> program = loadLayer(kShape);
  const std::vector<Handle<sluice_transport>> transports = threadsOf(kRanks);
  const std::vector<Kind> all = kinds();
  std::vector<Outcome> found(all.size());
  LayerData data = layerData();
  std::vector<sluice_status> ended(kRanks, SLUICE_ERROR_INTERNAL);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const Handle<sluice_context> context = contextOf(program, transports[rank], nullptr, 1);
      if (context) ended[rank] = runKinds(all, context.get(), rank, refusing, submits, data, found);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(ended == std::vector<sluice_status>(kRanks));
  const std::string prefix = "rank " + std::to_string(refusing) + ": ";
  for (size_t k = 0; k < all.size(); ++k) {
    INFO(all[k].entry << ", " << all[k].name << ", refused by rank " << refusing);
    const Answer &own = found[k].answers[refusing], &other = found[k].answers[1 - refusing];
    CHECK((own.status == SLUICE_ERROR_ARGUMENT || own.status == SLUICE_ERROR_FAILED));
    CHECK(other.status == SLUICE_ERROR_FAILED);
    CHECK(other.message == (own.message.rfind(prefix, 0) == 0 ? own.message : prefix + own.message));
    CHECK(found[k].after == std::vector<sluice_status>(kRanks));
    CHECK(hashOutputs(found[k].data) == expected);
  }
}

TEST_CASE("whatever one rank refuses fails its step at all ranks, and the next step has the right bits") {
  auto program = Program::fromTaskProgram(buildMoeProgram(kShape));
  REQUIRE(program.ok());
  LayerData alone = layerData();
  REQUIRE(runLayer(*program, {.threads = 1}, alone).ok());
  for (const bool submits : {false, true})
    for (const int refusing : {0, 1}) checkAll(refusing, submits, hashOutputs(alone));
}

TEST_CASE("a refusal at a rank that is alone is no step, and without a context an error") {
  sluice_transport* alone = nullptr;
  REQUIRE(sluice_transport_alone(&alone) == SLUICE_OK);
  const Handle<sluice_transport> transport(alone);
  const Handle<sluice_program> program = loadLayer({});
  const Handle<sluice_context> context = contextOf(program, transport);
  CHECK(sluice_context_refuse(nullptr, 0, "why") == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_refuse(context.get(), 0, nullptr) == SLUICE_ERROR_ARGUMENT);
  CHECK(sluice_context_error(context.get()) == std::string("message is null"));
  CHECK(sluice_context_refuse(context.get(), 0, "why") == SLUICE_OK);
  CHECK(sluice_context_refuse(context.get(), ~0u, "why") == SLUICE_OK);
  LayerData data = makeLayerData(buildMoeProgram({}), {.tokens = {.counts = {20}}});
  REQUIRE(bindLayer(context.get(), data, 0) == SLUICE_OK);
  CHECK(sluice_context_run(context.get(), "forward", 0) == SLUICE_OK);
}

}  // namespace
}  // namespace sluice
