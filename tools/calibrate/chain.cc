#include "tools/calibrate/chain.h"

#include <fmt/format.h>

#include "runtime/program/text.h"

namespace sluice {
namespace {

// Entry `route` makes the routing that entry `chain` uses. Tensor x0 goes in, x<families> comes out.
std::string chainText(const ChainShape& s) {
  const auto scale = [&](const std::string& name, std::string_view from, std::string_view to,
                         const std::string& events, int priority) {
    return fmt::format(
        "family {0} : scale over tokens tiles 1 on unified reads {1} writes {2} {3} tiling n={4} alpha=2\n"
        "lane {0} over tokens on unified priority {5} rotation {6} dealt {2} to {7} seats\n",
        name, from, to, events, s.columns, priority, s.window % s.cores, s.cores);
  };
  std::string text = fmt::format(
      "program chain target cpu limits ranks 1 experts 1 top_k 1 max_tokens {} cores {}\n"
      "buffer expert_ids : I32 [T, 1] input\n"
      "buffer x0 : BF16 [T, {}] input\n"
      "buffer routed : BF16 [T, {}] output\n"
      "entry route routed by expert_ids\n"
      "entry chain routed as route\n"
      "space tokens : tokens of 1 window {}\n",
      s.tokens, s.cores, s.columns, s.columns, s.window);
  text += scale("route/routed", "x0", "routed", "", 0);
  for (int f = 1; f <= s.families; ++f) {
    const std::string from = fmt::format("x{}", f - 1), to = fmt::format("x{}", f);
    const bool isLast = f == s.families;
    if (!isLast)
      text += fmt::format(
          "region {0} : T * {1} bytes\n"
          "event chain/{0}_done : [tokens] counts tasks to constant(1)\n",
          to, s.columns * 2);
    text += fmt::format("buffer {} : BF16 [T, {}] {}\n", to, s.columns, isLast ? "output" : "temp in " + to);
    const std::string waits = f > 1 ? fmt::format("waits {}_done", from) : "";
    const std::string signals = isLast ? "" : fmt::format(" signals {}_done", to);
    text += scale("chain/" + to, from, to, waits + signals, s.families - f);
  }
  return text;
}

}  // namespace

Chain::Chain(const ChainShape& shape)
    : ids_(static_cast<size_t>(shape.tokens)),
      in_(ids_.size() * static_cast<size_t>(shape.columns), toBFloat16(1)),
      out_(in_.size()) {}

Expected<std::unique_ptr<Chain>> Chain::create(const ChainShape& shape, int threads) {
  Expected<TaskProgram> tables = parseProgram(chainText(shape), "chain");
  if (!tables) return tables.error();
  Expected<Program> program = Program::fromTaskProgram(std::move(*tables));
  if (!program) return program.error();
  std::unique_ptr<Chain> chain(new Chain(shape));
  auto context = Context::create(*program, chain->ranks_.transport(0), {.threads = threads});
  if (!context) return context.error();
  chain->context_ = std::move(*context);
  const auto bind = [&](const std::string& name, DType type, int64_t columns, void* data) {
    return chain->context_->bind(name, {type, {shape.tokens, columns}, data});
  };
  if (Status bound = bind("expert_ids", DType::kI32, 1, chain->ids_.data()); !bound) return bound.error();
  if (Status bound = bind("x0", DType::kBF16, shape.columns, chain->in_.data()); !bound) return bound.error();
  for (const std::string& name : {std::string("routed"), fmt::format("x{}", shape.families)})
    if (Status bound = bind(name, DType::kBF16, shape.columns, chain->out_.data()); !bound)
      return bound.error();
  if (Status routed = chain->context_->run("route"); !routed) return routed.error();
  return chain;
}

}  // namespace sluice
