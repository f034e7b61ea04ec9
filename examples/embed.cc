// Runs a compiled MoE-FFN layer from C++: load, bind, run, and look at the result.
//
// usage: embed layer.slp
//
// Ranks are threads of this process. The inputs are random, and the outputs are compared with a
// double-precision reference; exit status 1 where one of them is off by more than 1.2e-2.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/context.h"
#include "tools/moe/inputs.h"
#include "tools/moe/reference.h"

namespace {

using sluice::Context;
using sluice::Status;
using sluice::tools::MoeDims;
using sluice::tools::Tensor;
using sluice::tools::TensorMap;

// The memory stays ours: it has to live as long as it is bound.
Status bind(Context& context, TensorMap& tensors) {
  for (auto& [name, tensor] : tensors)
    if (Status status = context.bind(name, {tensor.type(), tensor.shape(), tensor.data()}); !status)
      return status;
  return {};
}

// One rank, in its own thread. Creating a context and running an entry is done by all ranks together.
Status runRank(const sluice::Program& program, sluice::Transport& transport, TensorMap& inputs,
               TensorMap& outputs) {
  sluice::ContextOptions options;
  options.threads = 2;
  sluice::Expected<std::unique_ptr<Context>> context = Context::create(program, transport, options);
  if (!context) return context.error();
  if (Status status = bind(**context, inputs); !status) return status;
  if (Status status = bind(**context, outputs); !status) return status;
  for (const char* entry : {"forward", "backward"})
    if (Status status = (*context)->run(entry); !status) return status;
  return {};
}

TensorMap makeOutputs(const MoeDims& dims, int rank, int64_t tokens) {
  TensorMap outputs;
  for (const char* name : {"y", "dx", "d_expert_weights", "gate_up_weight_grad", "down_weight_grad"}) {
    sluice::tools::MoeTensor tensor = sluice::tools::moeTensor(dims, name, rank, tokens);
    outputs.emplace(name, Tensor(tensor.type, tensor.shape));
  }
  return outputs;
}

int fail(const std::string& message) {
  fmt::print(stderr, "embed: error: {}\n", message);
  return 1;
}

// Prints the error of each output; the exit status.
int compare(const MoeDims& dims, const std::vector<TensorMap>& inputs, const std::vector<TensorMap>& outputs,
            const std::vector<int64_t>& tokens) {
  std::vector<sluice::tools::MoeInputs> in;
  std::vector<sluice::tools::MoeOutputs> out;
  for (size_t r = 0; r < inputs.size(); ++r) {
    const int rank = static_cast<int>(r);
    in.push_back(*sluice::tools::moeInputs(dims, rank, inputs[r]));
    out.push_back(*sluice::tools::moeOutputs(dims, rank, outputs[r], tokens[r]));
  }
  const auto errors = sluice::tools::moeErrors(dims, in, out, 2);
  if (!errors) return fail(errors.error().message);
  int status = 0;
  for (const sluice::tools::OutputError& error : *errors) {
    fmt::print("{:<24}{:.3e}\n", error.name, error.relative);
    if (!(error.relative <= 1.2e-2)) status = fail(fmt::format("'{}' is wrong", error.name));
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: embed layer.slp");
  const sluice::Expected<sluice::Program> program = sluice::Program::load(argv[1]);
  if (!program) return fail(program.error().message);
  const sluice::Expected<MoeDims> dims = sluice::tools::moeDimsOf(program->tables());
  if (!dims) return fail(dims.error().message);

  sluice::tools::InputsSpec spec;
  spec.tokens.ragged = true;
  spec.tokens.most = dims->maxTokens;
  const auto tokens = sluice::tools::tokensOfRanks(*dims, spec);
  if (!tokens) return fail(tokens.error().message);
  std::vector<TensorMap> inputs, outputs;
  for (int r = 0; r < dims->ranks; ++r) {
    inputs.push_back(makeInputs(*dims, spec, r, (*tokens)[static_cast<size_t>(r)]));
    outputs.push_back(makeOutputs(*dims, r, (*tokens)[static_cast<size_t>(r)]));
  }

  sluice::LocalRanks ranks(program->ranks());
  std::vector<Status> results(inputs.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < inputs.size(); ++r)
    threads.emplace_back([&, r] {
      sluice::Transport& transport = ranks.transport(static_cast<int>(r));
      results[r] = runRank(*program, transport, inputs[r], outputs[r]);
      // Ends the step at the other ranks, too: they would wait for this one.
      if (!results[r]) transport.abort(results[r].error().message);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results)
    if (!result) return fail(result.error().message);
  return compare(*dims, inputs, outputs, *tokens);
}
