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
#include "tools/cli/run_tensors.h"
#include "tools/evaluate/output_errors.h"
#include "tools/moe/inputs.h"

namespace {

using sluice::Context;
using sluice::Status;
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

int fail(const std::string& message) {
  fmt::print(stderr, "embed: error: {}\n", message);
  return 1;
}

// Prints the error of each output; the exit status.
int compare(const sluice::Program& program, const std::vector<TensorMap>& inputs,
            const std::vector<TensorMap>& outputs) {
  const auto errors = sluice::tools::outputErrors(program.verified(), inputs, outputs, 2);
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
  const sluice::TaskProgram& tables = program->tables();
  sluice::tools::InputsSpec spec;
  spec.tokens.ragged = true;
  spec.tokens.most = tables.maxTokens;
  const auto tokens = sluice::tools::tokensOfRanks(tables, spec);
  if (!tokens) return fail(tokens.error().message);
  const auto tensors = sluice::tools::tensorsOf(tables, *sluice::tools::findEntries(tables, ""));
  std::vector<TensorMap> inputs, outputs;
  for (int r = 0; r < program->ranks(); ++r) {
    const int64_t own = (*tokens)[static_cast<size_t>(r)];
    auto made = sluice::tools::makeProgramInputs(tables, spec, r, own);
    if (!made) return fail(made.error().message);
    inputs.push_back(std::move(*made));
    outputs.push_back(sluice::tools::makeOutputs(tables, r, tensors.outputs, own));
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
  return compare(*program, inputs, outputs);
}
