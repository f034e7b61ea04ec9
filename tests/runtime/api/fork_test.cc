// Forked children of a process that has contexts, and processes that end with contexts alive.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <optional>

#include "runtime/api/context.h"
#include "runtime/base/child_process.h"
#include "tests/testing/end_of_child.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe_program.h"

namespace sluice {
namespace {

bool refuses(const Status& status) {
  return !status && status.error().message.find("of which this one was forked") != std::string::npos;
}

struct Made {
  Program program = *Program::fromTaskProgram(buildMoeProgram({.ranks = 1}));
  LayerData data = makeLayerData(program.tables(), {.tokens = {.counts = {30}}});
  LocalRanks ranks{1};
  std::shared_ptr<Workspace> workspace = *Workspace::create(ranks.transport(0), {.threads = 2});
  std::unique_ptr<Context> context;

  Made() {
    ContextOptions options;
    options.workspace = workspace;
    context = std::move(*Context::create(program, ranks.transport(0), options));
    (void)bindAll(data, 0, *context);
  }
};

TEST_CASE("what was made before a fork knows so in the child and in its child, and names who made it") {
  const Origin parents;
  const std::string said =
      "the layer was made by process " + std::to_string(getpid()) + ", of which this one was forked";
  const auto names = [&said](const Origin& origin) {
    const Status status = origin.check("the layer");
    return origin.isForked() && !status && status.error().message.find(said) == 0;
  };
  const int end = endOfChild([&] {
    const Origin own;
    if (!names(parents)) return 1;
    if (own.isForked() || !own.check("it").ok()) return 2;
    return endOfChild([&] { return names(parents) && own.isForked() ? 0 : 4; });
  });
  CHECK(end == 0);
  CHECK_FALSE(parents.isForked());
  CHECK(parents.check("the layer").ok());
}

TEST_CASE("in a forked child calls are errors, and what is destroyed there leaves the parent's alone") {
  auto made = std::make_unique<Made>();
  REQUIRE(made->context->run("forward").ok());
  auto step = std::make_unique<PendingStep>(std::move(*made->context->submit("backward")));
  const int end = endOfChild([&] {
    Context& context = *made->context;
    if (!refuses(context.run("forward"))) return 1;
    const auto submitted = context.submit("forward");
    if (submitted.ok() || !refuses(Status(submitted.error()))) return 2;
    if (!refuses(step->wait()) || !step->isDone()) return 3;
    const auto output = context.output("y");
    if (output.ok()) return 4;
    ContextOptions options;
    options.workspace = made->workspace;
    const auto other = Context::create(made->program, made->ranks.transport(0), options);
    if (other.ok() || other.error().message.find("forked") == std::string::npos) return 5;
    if (Workspace::create(made->ranks.transport(0), {}).ok()) return 6;
    static_cast<void>(context.lastRun());
    context.startTrace();
    static_cast<void>(context.takeTrace());
    step->cancel();
    made->context.reset();
    step.reset();
    made.reset();
    return 7;
  });
  CHECK(end == 7);
  CHECK(step->wait().ok());
  CHECK(made->context->run("forward").ok());
}

// ThreadSanitizer cannot start threads in the child of a process that has some.
#ifndef __SANITIZE_THREAD__
TEST_CASE("a forked child may make a transport and contexts of its own") {
  Made parent;
  REQUIRE(parent.context->run("forward").ok());
  CHECK(endOfChild([] {
          Made own;
          return own.context->run("forward").ok() ? 3 : 4;
        }) == 3);
}
#endif

TEST_CASE("a process ends well with contexts and steps that end with it, or that nobody ever destroys") {
  for (const bool isKept : {false, true})
    for (const bool isRunning : {false, true}) {
      const int end = endOfChild([&] {
        static std::unique_ptr<Made> made;
        static std::optional<PendingStep> step;
        // still reachable, so that they are no leak
        static Made* keptMade = nullptr;
        static PendingStep* keptStep = nullptr;
        made = std::make_unique<Made>();
        if (!made->context->run("forward")) return 1;
        if (isRunning) step.emplace(std::move(*made->context->submit("backward")));
        if (isKept && isRunning) {
          keptStep = new PendingStep(std::move(*step));
          step.reset();
        }
        if (isKept) keptMade = made.release();
        std::exit(keptMade || keptStep || made ? 0 : 2);
        return 3;
      });
      CHECK(end == 0);
    }
}

}  // namespace
}  // namespace sluice
