#include "compiler/api/pipeline.h"

#include <algorithm>

#include "compiler/analysis/task_phases.h"
#include "compiler/passes/passes.h"
#include "runtime/base/encodings.h"

namespace sluice {
namespace {

constexpr std::string_view kGraphPhases[] = {"import",        "quantize-weights",   "round-products",
                                             "differentiate", "weight-rows",        "scale-factors",
                                             "encode-kept",   "delay-weight-grads", "encode-dispatched",
                                             "fuse",          "quantize-rows",      "propagate-splits"};

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
  const Encodings encodings = *parseEncodings(options.encode);
  const bool hasAmaxes = findInfo(encodings.rows->rounding).isScaled;
  if (phase == "quantize-weights" && (encodings.hasCodes() || !encodings.single.empty())) {
    QuantizeWeightsOptions quantize;
    if (options.trainable) quantize.keep = *options.trainable;
    quantize.encode = options.encode;
    manager.addPass(createQuantizeWeights(quantize));
  } else if (phase == "round-products" && encodings.rows->rounds()) {
    manager.addPass(createRoundProducts({.encode = options.encode}));
  } else if (phase == "weight-rows") {
    manager.addPass(createWeightRows());
  } else if (phase == "scale-factors" && hasAmaxes) {
    const AmaxSource amax = encodings.rows->amax;
    manager.addPass(createScaleFactors(
        {.delayed = amax == AmaxSource::kGiven, .outputs = amax == AmaxSource::kReturned}));
  } else if (phase == "encode-kept" && options.trainable && !encodings.keepsBf16) {
    manager.addPass(createEncodeKept());
  } else if (phase == "delay-weight-grads" && options.delayWeightGrads) {
    manager.addPass(createDelayWeightGrads());
  } else if (phase == "encode-dispatched" && encodings.sent->rounds()) {
    manager.addPass(createEncodeDispatched());
  } else if (phase == "quantize-rows" && (encodings.rows->hasCodes() || encodings.grads->hasCodes())) {
    manager.addPass(
        createQuantizeRows({.rows = encodings.rows->hasCodes(), .gradients = encodings.grads->hasCodes()}));
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
