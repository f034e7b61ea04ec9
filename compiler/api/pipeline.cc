#include "compiler/api/pipeline.h"

#include <algorithm>

#include "compiler/analysis/task_phases.h"
#include "compiler/passes/passes.h"

namespace sluice {
namespace {

constexpr std::string_view kGraphPhases[] = {
    "import",      "quantize-weights",  "round-products", "differentiate", "weight-rows",     "scale-factors",
    "encode-kept", "encode-dispatched", "fuse",           "quantize-rows", "propagate-splits"};

}  // namespace

std::vector<std::string_view> phaseNames() {
  std::vector<std::string_view> names(std::begin(kGraphPhases), std::end(kGraphPhases));
  names.push_back("form-tasks");
  names.push_back("read-in-place");
  for (const TaskPhase& phase : taskPhases()) names.push_back(phase.name);
  return names;
}

bool isGraphPhase(std::string_view phase) {
  return std::find(std::begin(kGraphPhases), std::end(kGraphPhases), phase) != std::end(kGraphPhases);
}

void addGraphPhase(mlir::OpPassManager& manager, std::string_view phase, const Target& target,
                   const CompileOptions& options) {
  if (phase == "quantize-weights" && makesCodes(options.precision)) {
    QuantizeWeightsOptions quantize;
    if (options.trainable) quantize.keep = *options.trainable;
    quantize.encoding = encodingOf(options.precision).name;
    quantize.group = options.group;
    quantize.zeros = options.zeros;
    manager.addPass(createQuantizeWeights(quantize));
  } else if (phase == "round-products" && isFp8(options.precision)) {
    RoundProductsOptions round;
    round.amax = options.precision == "fp8";
    round.squares = options.precision == "mxfp8-32x32";
    round.floor = options.exponent == "floor";
    round.hybrid = options.fp8Format == "hybrid";
    manager.addPass(createRoundProducts(round));
  } else if (phase == "weight-rows") {
    manager.addPass(createWeightRows());
  } else if (phase == "scale-factors" && options.precision == "fp8") {
    manager.addPass(createScaleFactors({.delayed = options.recipe == "delayed", .outputs = options.amaxes}));
  } else if (phase == "encode-kept" && options.trainable && options.keptAs == "codes") {
    manager.addPass(createEncodeKept());
  } else if (phase == "encode-dispatched" && options.fp8Dispatch) {
    manager.addPass(createEncodeDispatched());
  } else if (phase == "quantize-rows" && makesCodes(options.precision)) {
    QuantizeRowsOptions quantize;
    quantize.rows = !options.precision.ends_with("-weights");
    quantize.gradients = options.backward == "int8";
    if (quantize.rows || quantize.gradients) manager.addPass(createQuantizeRows(quantize));
  } else if (phase == "differentiate" && options.trainable) {
    DifferentiateOptions differentiate;
    if (*options.trainable != std::vector<std::string>{"all"}) differentiate.trainable = *options.trainable;
    differentiate.accumulate = options.accumulate;
    differentiate.keep = options.keep;
    differentiate.grads = options.grads;
    manager.addPass(createDifferentiate(std::move(differentiate)));
  } else if (phase == "fuse") {
    FuseOptions fuse;
    // with separate cores, no core runs both a product and the node that reads it
    const std::vector<std::string> foldsOnly = {"scale"};
    fuse.kinds = target.cubeCores != 0 && options.fuse.empty() ? foldsOnly : options.fuse;
    manager.addPass(createFuse(std::move(fuse)));
  } else if (phase == "propagate-splits") {
    manager.addPass(createPropagateSplits({target.slotRows, target.tokenSlot}));
    manager.addPass(createCheckSplits());
  }
}

}  // namespace sluice
