#include "tests/runtime/faults/fault_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/testing/faulty_transport.h"
#include "tests/testing/moe_program.h"
#include "tests/testing/program_data.h"
#include "tests/testing/wide_program.h"

namespace sluice {
namespace {

uint64_t hashContent(const tools::TensorMap& outputs) {
  uint64_t hash = 0;
  for (const auto& [name, tensor] : outputs) hash = sluice::hashContent(bytesOf(tensor), hash);
  return hash;
}

tools::TensorMap freshOutputs(const tools::TensorMap& like) {
  tools::TensorMap outputs;
  for (const auto& [name, tensor] : like) {
    tools::Tensor output(tensor.type(), tensor.shape());
    if (output.bytes() > 0) std::memset(output.data(), 0xa5, static_cast<size_t>(output.bytes()));
    outputs.emplace(name, std::move(output));
  }
  return outputs;
}

// Runs the entries of a step on outputs that are gone when it returns: whoever still writes there is found by
// a sanitizer.
Status runStep(LayerData& step, int rank, const TaskProgram& program, Context& context,
               std::vector<uint64_t>& bits) {
  tools::TensorMap outputs = freshOutputs(step.outputs[rank]);
  for (auto* tensors : {&step.inputs[rank], &outputs})
    for (auto& [name, tensor] : *tensors)
      if (Status bound = context.bind(name, viewTensor(tensor)); !bound) return bound;
  for (const Entry& entry : program.entries) {
    if (Status ran = context.run(entry.name); !ran) return ran;
    bits.push_back(hashContent(outputs));
  }
  return {};
}

std::string firstPart(const std::string& message) { return message.substr(0, message.find(';')); }

// What an error has to say, whatever else it says.
bool namesFault(const FaultPlan& plan, const std::string& error) {
  const auto says = [&](const std::string& text) { return error.find(text) != std::string::npos; };
  if (plan.die > 0) return error.starts_with(fmt::format("rank {} ", plan.rank)) && says("has died");
  return says("rank ") && says(plan.corrupt > 0 ? "arrived damaged" : "waited");
}

FaultCase makeCase(const std::string& name, const TaskProgram& tables,
                   const std::vector<std::vector<int64_t>>& tokens) {
  auto program = Program::fromTaskProgram(tables);
  if (!program) throw std::runtime_error(name + ": " + program.error().message);
  FaultCase layer{name, std::move(*program), {}, {}, 0};
  const DataRouting routings[] = {DataRouting::kUniform, DataRouting::kMasked, DataRouting::kFewExperts};
  for (size_t i = 0; i < tokens.size(); ++i)
    layer.steps.push_back(makeProgramData(tables, tokens[i], routings[i % 3], static_cast<uint32_t>(i + 1)));

  FaultyRanks ranks(tables.mesh.peers(), {.hide = true});
  std::vector<std::thread> threads;
  layer.bits.resize(tables.mesh.peers());
  std::vector<std::string> errors(tables.mesh.peers());
  for (int rank = 0; rank < tables.mesh.peers(); ++rank)
    threads.emplace_back([&, rank] {
      RankEnd end = runRank(layer, rank, ranks.transport(rank), {.executor = ExecutorKind::kSerial});
      layer.bits[rank] = std::move(end.bits);
      errors[rank] = end.error;
    });
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < tables.mesh.peers(); ++rank) {
    if (!errors[rank].empty()) throw std::runtime_error(name + ": " + errors[rank]);
    layer.operations = std::max(layer.operations, ranks.transport(rank).operations());
  }
  return layer;
}

// Ranks that miss data of a rank that left in good order name it; a rank that left after a failure is not
// named.
bool namesConsequence(const std::string& error, const std::vector<RankEnd>& ends) {
  std::smatch left;
  if (!std::regex_search(error, left, std::regex("rank (\\d) (has left|left)"))) return false;
  return !ends.at(std::stoul(left[1])).error.empty();
}

// The error in the message of an end, or "". Ranks that fail at the same time may each keep their own
// message.
std::string judgeWords(const FaultPlan& plan, const std::string& error, const std::vector<RankEnd>& ends) {
  if (plan.isHarmless()) return "failed: " + error;
  if (plan.corrupt > 0)
    return error.find("arrived damaged") == std::string::npos ? "names no damage: " + error : "";
  if (plan.die > 0 && std::regex_search(error, std::regex(fmt::format("^rank {} .*has died", plan.rank))))
    return "";
  if (namesConsequence(error, ends)) return "names a consequence: " + error;
  // without notice of a death, a rank that waits for a waiting survivor names that survivor
  if (std::regex_search(error, std::regex("rank \\d.*(: .*waited|still waiting) .* (ranks? \\d|task )")))
    return "";
  return "does not say what it waited for: " + error;
}

}  // namespace

std::string toText(const RankEnd& end) {
  std::string text = end.error + "\n";
  for (const uint64_t bits : end.bits) text += fmt::format("{} ", bits);
  return text;
}

RankEnd rankEndOf(const std::string& text) {
  RankEnd end;
  std::istringstream stream(text);
  std::getline(stream, end.error);
  for (uint64_t bits = 0; stream >> bits;) end.bits.push_back(bits);
  return end;
}

RankEnd runRank(FaultCase& layer, int rank, Transport& transport, const ContextOptions& options) {
  RankEnd end;
  auto context = Context::create(layer.program, transport, options);
  if (!context) return {{}, context.error().message};
  for (LayerData& step : layer.steps) {
    const Status ran = runStep(step, rank, layer.program.tables(), **context, end.bits);
    if (ran) continue;
    end.error = ran.error().message;
    break;
  }
  return end;
}

std::vector<RankEnd> runUnder(FaultCase& layer, const FaultPlan& plan, const ContextOptions& options) {
  const int ranks = layer.program.ranks();
  FaultyRanks faulty(ranks, plan);
  std::vector<RankEnd> ends(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { ends[rank] = runRank(layer, rank, faulty.transport(rank), options); });
  for (std::thread& thread : threads) thread.join();
  return ends;
}

double limitFor(const FaultPlan& plan) { return plan.drop > 0 || plan.cut > 0 ? 0.15 : 20; }

std::string judge(const FaultCase& layer, const FaultPlan& plan, const std::vector<RankEnd>& ends) {
  std::string first;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    const RankEnd& end = ends[rank];
    for (size_t run = 0; run < end.bits.size(); ++run)
      if (end.bits[run] != layer.bits[rank][run])
        return fmt::format("rank {}: wrong bits in run {}", rank, run);
    if (end.error.empty() && end.bits.size() != layer.bits[rank].size())
      return fmt::format("rank {}: {} runs of {}", rank, end.bits.size(), layer.bits[rank].size());
    if (end.error.empty() || (plan.die > 0 && plan.rank == static_cast<int>(rank))) continue;
    if (plan.isHarmless()) return fmt::format("rank {}: {}", rank, end.error);
    if (!namesFault(plan, end.error))
      return fmt::format("rank {}: does not name the fault: {}", rank, end.error);
    if (first.empty()) first = firstPart(end.error);
    if (firstPart(end.error) != first)
      return fmt::format("rank {}: says '{}', but another '{}'", rank, end.error, first);
  }
  return "";
}

std::vector<FaultCase> makeFaultCases() {
  const auto shape = [](int ranks, int topK) {
    return MoeShape{.ranks = ranks,
                    .experts = 2 * ranks,
                    .topK = topK,
                    .hidden = 20,
                    .intermediate = 12,
                    .maxTokens = 40,
                    .cores = 3};
  };
  MoeShape fused = shape(3, 2), grouped = shape(2, 2), single = shape(4, 1);
  MoeShape uneven = shape(3, 2), without = shape(4, 2);
  fused.fused = true;
  grouped.groupSlots = 2;
  single.experts = 4;
  uneven.experts = 5;
  without.experts = 3;
  std::vector<FaultCase> cases;
  cases.push_back(makeCase("plain, 2 ranks", buildMoeProgram(shape(2, 2)), {{40, 17}, {0, 33}}));
  cases.push_back(makeCase("fused, 3 ranks", buildMoeProgram(fused), {{25, 0, 40}, {1, 0, 0}}));
  cases.push_back(makeCase("plain, 4 ranks", buildMoeProgram(shape(4, 3)), {{9, 40, 0, 21}, {0, 0, 0, 0}}));
  cases.push_back(makeCase("grouped, 2 ranks", buildMoeProgram(grouped), {{40, 40}, {3, 29}}));
  cases.push_back(
      makeCase("one expert a rank, 4 ranks", buildMoeProgram(single), {{5, 6, 7, 8}, {0, 20, 0, 0}}));
  cases.push_back(
      makeCase("wide, 3 ranks", buildWideProgram({.base = shape(3, 2)}), {{31, 2, 14}, {0, 8, 0}}));
  cases.push_back(makeCase("5 experts, 3 ranks", buildMoeProgram(uneven), {{12, 40, 7}, {0, 0, 30}}));
  cases.push_back(
      makeCase("a rank without experts, 4 ranks", buildMoeProgram(without), {{8, 0, 9, 30}, {1, 2, 3, 4}}));
  return cases;
}

ContextOptions executorOf(uint64_t number, const FaultPlan& plan) {
  ContextOptions options{
      .threads = static_cast<int>(number % 4), .timeoutSeconds = limitFor(plan), .pin = false};
  if (options.threads == 0) options.executor = ExecutorKind::kSerial;
  return options;
}

std::string judgeEach(const FaultCase& layer, const FaultPlan& plan, std::vector<RankEnd> ends) {
  const std::vector<RankEnd> asTheyEnded = ends;
  for (size_t rank = 0; rank < ends.size(); ++rank) {
    std::string& error = ends[rank].error;
    if (error.empty()) continue;
    if (error != kGone)
      if (const std::string wrong = judgeWords(plan, error, asTheyEnded); !wrong.empty())
        return fmt::format("rank {} {}", rank, wrong);
    // it has been checked: from here on only bits matter
    error = fmt::format("rank {} waited: arrived damaged, has died", plan.rank);
  }
  return judge(layer, plan, ends);
}

}  // namespace sluice
