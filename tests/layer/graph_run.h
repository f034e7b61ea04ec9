// From a graph file to checked outputs of any program: compile, load, make inputs, run on ranks that are
// threads, compare with double precision.
#pragma once

#include <string>
#include <vector>

#include "compiler/api/compile.h"
#include "runtime/api/context.h"
#include "tests/testing/layer_run.h"
#include "tests/testing/moe/reference.h"

namespace sluice {

// graphs/moe_ffn/NAME, or the file of an absolute path, for target cpu, encoded and decoded. Fails the test
// with the compiler's report.
Program compileGraph(const std::string& name, const CompileOptions& options);

// Tensors of all ranks: inputs as makeProgramInputs() gives them; outputs with a pattern that no result has,
// but gradients that are added to with their starts.
LayerData makeGraphData(const Program& program, const tools::InputsSpec& spec);

// Runs all entries in order; fails the test where one does.
void runGraph(const Program& program, ExecutorKind executor, LayerData& data);

// Of every output, over all ranks. `data` is that of one run of makeGraphData().
std::vector<tools::OutputError> errorsOfGraph(const Program& program, const LayerData& data);

}  // namespace sluice
