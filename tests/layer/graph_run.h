// From a graph file to checked outputs of any program: compile, load, make inputs, run on ranks that are
// threads, compare with double precision.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe/reference.h"

namespace sluice {

// graphs/moe_ffn/NAME, graphs/NAME if it has a folder, or the file of an absolute path, for target cpu,
// encoded and decoded. Fails the test with the compiler's report.
Program compileGraph(const std::string& name, const CompileOptions& options);

// Tensors of all ranks: inputs as makeProgramInputs() gives them; outputs with a pattern that no result has,
// but gradients that are added to with their starts. Outputs of rows are among them only if the entries have
// no expert ids.
LayerData makeGraphData(const Program& program, const tools::InputsSpec& spec);

// Runs all entries in order; fails the test where one does.
void runGraph(const Program& program, const ContextOptions& options, LayerData& data);
void runGraph(const Program& program, ExecutorKind executor, LayerData& data);
// The same on a copy of `before`, which is returned.
LayerData runOf(const Program& program, const ContextOptions& options, const LayerData& before);

// Calls body() once per instruction set of this machine, with that one forced.
void onEveryIsa(const std::function<void()>& body);

// Returns the error of every output, over all ranks. `data` is that of makeGraphData() after one run.
std::vector<tools::OutputError> errorsOfGraph(const Program& program, const LayerData& data);

// Checks that errors are at most 1.2e-2 or, where numbers nearly cancel, what rounding may cause in the
// program.
void checkErrors(const std::vector<tools::OutputError>& errors, const Program& program,
                 const LayerData& data);

}  // namespace sluice
