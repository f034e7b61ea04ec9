// A step that one rank refuses fails at all ranks with its message, and the next step is right.
#include <catch2/catch.hpp>
#include <limits>
#include <thread>

#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

constexpr int kRanks = 2;

Program layer(int experts = 4) {
  auto program = Program::fromTaskProgram(buildMoeProgram({.ranks = kRanks, .experts = experts}));
  REQUIRE(program.ok());
  return *program;
}

LayerData dataOf(const Program& program, uint32_t seed = 1) {
  return makeLayerData(program.tables(), {.tokens = {.counts = {30, 21}}, .seed = seed});
}

// The two ways to request a step.
Status ask(Context& context, bool submits, const std::string& entry, SavedSet set = {}) {
  if (!submits) return context.run(entry, set);
  auto step = context.submit(entry, set);
  return step ? step->wait() : Status(step.error());
}

// A call for a step of `entry` that is refused; `data` may be spoiled.
struct Kind {
  std::string name;
  std::string entry;
  std::function<Status(Context&, LayerData&, int rank, bool submits)> call;
};

// With one tensor bound incorrectly: the error of bind() may be ignored.
Kind bound(const std::string& entry, const std::string& tensor, const std::string& how,
           const std::function<void(TensorView&)>& change) {
  return {tensor + " " + how, entry, [=](Context& context, LayerData& data, int rank, bool submits) {
            auto& of = data.inputs[rank].contains(tensor) ? data.inputs[rank] : data.outputs[rank];
            TensorView view = viewTensor(of.at(tensor));
            change(view);
            static_cast<void>(context.bind(tensor, view));
            return ask(context, submits, entry);
          }};
}

Kind id(const std::string& how, size_t at, int32_t value) {
  return {"id " + how, "forward", [=](Context& context, LayerData& data, int rank, bool submits) {
            tools::Tensor& ids = data.inputs[rank].at("expert_ids");
            int32_t* all = ids.as<int32_t>();
            const int32_t before = all[at];
            all[at] = value;
            const Status ran = ask(context, submits, "forward");
            all[at] = before;
            return ran;
          }};
}

std::vector<Kind> kinds() {
  const auto type = [](DType of) { return [of](TensorView& view) { view.type = of; }; };
  const auto dim = [](size_t d, int64_t size) { return [=](TensorView& view) { view.shape[d] = size; }; };
  const auto flat = [](TensorView& view) { view.shape = {view.elements()}; };
  const auto deep = [](TensorView& view) { view.shape.push_back(1); };
  const auto gone = [](TensorView& view) { view.data = nullptr; };
  std::vector<Kind> all = {
      bound("forward", "x", "float32", type(DType::kF32)),
      bound("forward", "x", "int64", type(DType::kI64)),
      bound("forward", "x", "too narrow", dim(1, 31)),
      bound("forward", "x", "with too many tokens", dim(0, 65)),
      bound("forward", "x", "with a negative number of tokens", dim(0, -1)),
      bound("forward", "x", "with fewer tokens than others", dim(0, 7)),
      bound("forward", "x", "flat", flat),
      bound("forward", "x", "with one dimension more", deep),
      bound("forward", "x", "between two elements",
            [](TensorView& view) { view.data = static_cast<std::byte*>(view.data) + 1; }),
      bound("forward", "x", "without data", gone),
      bound("forward", "expert_ids", "of 64 bits", type(DType::kI64)),
      bound("forward", "expert_ids", "with too many columns", dim(1, 3)),
      bound("forward", "expert_weights", "bfloat16", type(DType::kBF16)),
      bound("forward", "expert_weights", "with fewer tokens than x", dim(0, 3)),
      bound("forward", "gate_up_weight", "with too few experts", dim(0, 1)),
      bound("forward", "down_weight", "float16", type(DType::kF16)),
      bound("forward", "y", "of the wrong type", type(DType::kF32)),
      bound("forward", "y", "with more tokens than x", dim(0, 40)),
      bound("backward", "dy", "float32", type(DType::kF32)),
      bound("backward", "dy", "with other tokens than forward", dim(0, 9)),
      bound("backward", "dy", "without data", gone),
      bound("backward", "dx", "too wide", dim(1, 64)),
      bound("backward", "gate_up_weight_grad", "of too many experts", dim(0, 9)),
      bound("backward", "down_weight_grad", "without dimensions",
            [](TensorView& view) { view.shape.clear(); }),
      id("out of range", 3, 4),
      id("negative", 0, -2),
      id("of no range", 1, std::numeric_limits<int32_t>::min()),
  };
  all.push_back({"id twice", "forward", [](Context& context, LayerData& data, int rank, bool submits) {
                   int32_t* ids = data.inputs[rank].at("expert_ids").as<int32_t>();
                   const int32_t before = ids[1];
                   ids[1] = ids[0];
                   const Status ran = ask(context, submits, "forward");
                   ids[1] = before;
                   return ran;
                 }});
  for (const char* entry : {"forward", "backward"}) {
    const auto calls = [&](const std::string& name, const std::string& requested, uint32_t set) {
      all.push_back({name, entry, [=](Context& context, LayerData&, int, bool submits) {
                       return ask(context, submits, requested, {set});
                     }});
    };
    calls("an entry that is not there", "sideways", 0);
    calls("an entry without name", "", 0);
    calls("an entry with a long name", std::string(1000, 'a'), 0);
    calls("a saved set past the last", entry, 1024);
    calls("a saved set far past the last", entry, ~0u);
    all.push_back({"a caller's own reason", entry, [](Context& context, LayerData&, int, bool submits) {
                     const std::string why = "there is no batch left";
                     const Status refused = submits ? context.refuseSubmitted(why) : context.refuse(why);
                     return refused ? Status(Error{why}) : refused;
                   }});
  }
  return all;
}

// Checks the messages of the refused step at both ranks, and the bits of the steps after it.
struct Outcome {
  std::vector<std::string> messages = std::vector<std::string>(kRanks);
  std::vector<std::string> after = std::vector<std::string>(kRanks);
};

// All kinds in one job, so that an effect of one on the next is found.
void checkAll(ExecutorKind executor, bool submits, int refusing) {
  const Program program = layer();
  LayerData data = dataOf(program), alone = dataOf(program);
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  const uint64_t expected = hashOutputs(alone);
  const std::vector<Kind> all = kinds();
  std::vector<Outcome> found(all.size());
  std::vector<LayerData> outputs;
  for (size_t k = 0; k < all.size(); ++k) outputs.push_back(dataOf(program));
  const auto results = runRanks(program, {.threads = 1, .executor = executor, .timeoutSeconds = 20},
                                [&](int rank, Context& context) -> Status {
                                  for (size_t k = 0; k < all.size(); ++k) {
                                    if (Status bound = bindAll(data, rank, context); !bound) return bound;
                                    if (all[k].entry == "backward")
                                      if (Status ran = context.run("forward"); !ran) return ran;
                                    found[k].messages[rank] =
                                        messageOf(rank == refusing ? all[k].call(context, data, rank, submits)
                                                                   : ask(context, submits, all[k].entry));
                                    if (Status bound = bindAll(outputs[k], rank, context); !bound)
                                      return bound;
                                    for (const char* entry : {"forward", "backward"})
                                      if (Status ran = context.run(entry); !ran)
                                        found[k].after[rank] += ran.error().message;
                                  }
                                  return {};
                                });
  for (const Status& result : results) CHECK(messageOf(result) == "");
  const std::string prefix = "rank " + std::to_string(refusing) + ": ";
  for (size_t k = 0; k < all.size(); ++k) {
    INFO(all[k].entry << ", " << all[k].name << ", refused by rank " << refusing);
    std::string own = found[k].messages[refusing];
    const std::string& other = found[k].messages[1 - refusing];
    CHECK(own != "");
    if (own.rfind(prefix, 0) == 0) own = own.substr(prefix.size());
    // of a long one its beginning
    CHECK(other.size() > prefix.size());
    CHECK((own.size() < 380 ? other == prefix + own : (prefix + own).rfind(other, 0) == 0));
    CHECK(found[k].after == std::vector<std::string>(kRanks));
    CHECK(hashOutputs(outputs[k]) == expected);
  }
}

TEST_CASE("whatever one rank refuses fails its step at all ranks, and the next step has the right bits") {
  for (const bool submits : {false, true})
    for (const int refusing : {0, 1}) {
      checkAll(ExecutorKind::kParallel, submits, refusing);
      checkAll(ExecutorKind::kSerial, submits, refusing);
    }
}

TEST_CASE("a rank that has bound nothing yet refuses the first step of all") {
  const Program program = layer();
  LayerData data = dataOf(program), alone = dataOf(program);
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  std::vector<std::string> first(kRanks);
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    if (rank == 0)
      if (Status bound = bindAll(data, rank, context); !bound) return bound;
    first[rank] = messageOf(context.run("forward"));
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    if (Status ran = context.run("forward"); !ran) return ran;
    return context.run("backward");
  });
  for (const Status& result : results) CHECK(messageOf(result) == "");
  for (const std::string& message : first)
    CHECK(message == "rank 1: entry 'forward' needs tensor 'x', which is not bound");
  CHECK(hashOutputs(data) == hashOutputs(alone));
}

TEST_CASE("a set that the refused step would have used first is the same set afterwards") {
  const Program program = layer();
  LayerData data = dataOf(program), alone = dataOf(program);
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  const auto results = runRanks(program, {.threads = 1}, [&](int rank, Context& context) -> Status {
    if (Status bound = bindAll(data, rank, context); !bound) return bound;
    for (uint32_t set = 1; set < 6; ++set) {
      const bool refuses = static_cast<int>(set % 2) == rank;
      Status status = !refuses  ? context.run("forward", {set})
                      : set < 4 ? context.run("sideways", {set})
                                : context.refuse("no input", {set});
      if (status.ok() != (refuses && set >= 4)) return Error{"set " + std::to_string(set)};
    }
    for (uint32_t set : {9, 3, 5, 1})
      for (const char* entry : {"forward", "backward"})
        if (Status ran = context.run(entry, {set}); !ran) return ran;
    return {};
  });
  for (const Status& result : results) CHECK(messageOf(result) == "");
  CHECK(hashOutputs(data) == hashOutputs(alone));
}

TEST_CASE("a refusal at a rank that is alone costs no step and leaves all usable") {
  auto program = Program::fromTaskProgram(buildMoeProgram({}));
  LocalRanks ranks(1);
  auto workspace = Workspace::create(ranks.transport(0), {.threads = 1});
  REQUIRE((program.ok() && workspace.ok()));
  CHECK((*workspace)->refuse("nobody hears it").ok());
  CHECK((*workspace)->agree("do nothing", 1).ok());
  ContextOptions options;
  options.workspace = *workspace;
  auto context = Context::create(*program, ranks.transport(0), options);
  REQUIRE(context.ok());
  LayerData data = makeLayerData(program->tables(), {.tokens = {.counts = {20}}});
  CHECK((*context)->refuse("nobody hears it").ok());
  CHECK_FALSE((*context)->run("sideways").ok());
  CHECK_FALSE((*context)->submit("sideways").ok());
  REQUIRE(bindAll(data, 0, **context).ok());
  CHECK((*context)->run("forward").ok());
  CHECK((*context)->run("backward").ok());
}

// Two ranks, each with a workspace, and their actions until an error.
std::vector<std::string> inWorkspaces(
    const std::function<Status(int rank, Transport&, const std::shared_ptr<Workspace>&)>& body) {
  LocalRanks ranks(kRanks);
  std::vector<std::string> messages(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      auto workspace = Workspace::create(ranks.transport(rank), {.threads = 1});
      messages[rank] =
          messageOf(workspace ? body(rank, ranks.transport(rank), *workspace) : Status(workspace.error()));
    });
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST_CASE("ranks agree before they make a layer, or none makes it, and the next layer is right") {
  const std::vector<Program> programs = {layer(4), layer(6)};
  for (const int refusing : {0, 1})
    for (const bool disagrees : {false, true}) {
      LayerData data = dataOf(programs[1]), alone = dataOf(programs[1]);
      REQUIRE(runLayer(programs[1], {.threads = 1}, alone).ok());
      std::vector<std::string> messages(kRanks);
      const auto ended = inWorkspaces([&](int rank, Transport& transport, const auto& workspace) -> Status {
        if (rank != refusing)
          messages[rank] = messageOf(workspace->agree("make layer 'a'", 7));
        else if (disagrees)
          messages[rank] = messageOf(workspace->agree("make layer 'a'", 8));
        else
          messages[rank] = messageOf(workspace->refuse("no compiler"));
        if (Status all = workspace->agree("make layer 'b'", 9); !all) return all;
        ContextOptions options;
        options.workspace = workspace;
        auto context = Context::create(programs[1], transport, options);
        if (!context) return context.error();
        if (Status made = workspace->reserve(); !made) return made;
        if (Status bound = bindAll(data, rank, **context); !bound) return bound;
        if (Status ran = (*context)->run("forward"); !ran) return ran;
        return (*context)->run("backward");
      });
      CHECK(ended == std::vector<std::string>(kRanks));
      CHECK(hashOutputs(data) == hashOutputs(alone));
      if (disagrees) {
        const std::string digests = refusing == 1 ? "0000000000000008, but 0000000000000007"
                                                  : "0000000000000007, but 0000000000000008";
        const std::string message =
            "rank 1 is about to make layer 'a' otherwise than rank 0: digest " + digests + " at rank 0";
        CHECK(messages == std::vector<std::string>{message, message});
      } else {
        CHECK(messages[refusing] == "");
        CHECK(messages[1 - refusing] == "rank " + std::to_string(refusing) + ": no compiler");
      }
    }
}

TEST_CASE("ranks that differ are told the first argument that does, and both values") {
  struct Row {
    std::string first, second;  // arguments of ranks 0 and 1
    std::string found;          // empty: digests
  };
  const std::string wide(500, 'x');
  const std::vector<Row> rows = {
      {"MoE: a=1; b=2", "MoE: a=1; b=3",
       "rank 1 passed b as 3 to MoE, but rank 0 passed 2; all ranks must agree"},
      {"MoE: a=1; b=2", "MoE: a=0; b=3",
       "rank 1 passed a as 0 to MoE, but rank 0 passed 1; all ranks must agree"},
      {"f: ab=1; a=2", "f: ab=1; a=", "rank 1 passed a as  to f, but rank 0 passed 2; all ranks must agree"},
      {"f: a=1", "f: a=1; b=2",
       "rank 1 passed b as 2 to f, but rank 0 passed another value; all ranks must agree"},
      {"f: a=1; b=2", "f: a=1",
       "rank 1 passed b as another value to f, but rank 0 passed 2; all ranks must agree"},
      {"f: a", "f: b", "rank 1 passed b as  to f, but rank 0 passed another value; all ranks must agree"},
      {"f: a=x=1", "f: a=x=2", "rank 1 passed a as x=2 to f, but rank 0 passed x=1; all ranks must agree"},
      {"f: " + wide, "f: " + wide + "y", ""},
      {"f: a=1", "g: a=2", ""},
      {"f: a=1", "f: a=1", ""},
      {"f: ", "f: ", ""},
      {"", "f: a=1", ""},
      {"f: a=1", "", ""},
      {"a=1", "a=2", ""},
      {"; ; =", "; =; ", ""},
  };
  const auto ended = inWorkspaces([&](int rank, Transport&, const auto& workspace) -> Status {
    for (const Row& row : rows) {
      const std::string& own = rank == 0 ? row.first : row.second;
      const std::string said = messageOf(workspace->agree("make it", rank == 0 ? 1 : 2, 30, own));
      const std::string expected =
          row.found.empty() ? "rank 1 is about to make it otherwise than rank 0: digest " : row.found;
      if (said.substr(0, expected.size()) != expected) return Error{said};
      if (!workspace->agree("make it", 3, 30, own)) return Error{"the same digest is refused"};
    }
    return {};
  });
  CHECK(ended == std::vector<std::string>(kRanks));
}

TEST_CASE("ranks that run different layers of a workspace, or run and agree, fail at once") {
  const Program program = layer();
  LayerData data = dataOf(program), alone = dataOf(program);
  REQUIRE(runLayer(program, {.threads = 1}, alone).ok());
  std::vector<std::vector<std::string>> messages(3, std::vector<std::string>(kRanks));
  const auto ended = inWorkspaces([&](int rank, Transport& transport, const auto& workspace) -> Status {
    ContextOptions options;
    options.workspace = workspace;
    auto first = Context::create(program, transport, options);
    auto second = Context::create(program, transport, options);
    if (!first || !second) return Error{"create"};
    for (Context* context : {first->get(), second->get()})
      if (Status bound = bindAll(data, rank, *context); !bound) return bound;
    messages[0][rank] = messageOf((rank == 0 ? **first : **second).run("forward"));
    messages[1][rank] = messageOf(rank == 0 ? workspace->agree("take set 3", 1) : (*second)->run("forward"));
    messages[2][rank] = messageOf(rank == 0 ? (*first)->run("forward") : workspace->refuse("lost its way"));
    for (Context* context : {first->get(), second->get()})
      for (const char* entry : {"forward", "backward"})
        if (Status ran = context->run(entry); !ran) return ran;
    return {};
  });
  CHECK(ended == std::vector<std::string>(kRanks));
  CHECK(hashOutputs(data) == hashOutputs(alone));
  const auto both = [](const std::string& message) { return std::vector<std::string>{message, message}; };
  const std::string name = program.tables().name;
  CHECK(messages[0] == both("rank 1 runs entry 'forward' of context 1 of its workspace (program '" + name +
                            "'), but rank 0 of context 0 (program '" + name + "')"));
  CHECK(messages[1] == both("rank 1 runs entry 'forward', but rank 0 is about to take set 3"));
  CHECK(messages[2] == std::vector<std::string>{"rank 1: lost its way", ""});
}

}  // namespace
}  // namespace sluice
