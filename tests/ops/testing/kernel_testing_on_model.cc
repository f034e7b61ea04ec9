// implementations() for the suites that run on the model of a GPU.
#include "tests/ops/testing/kernel_testing.h"
#include "tests/ops/testing/model_kernels.h"

namespace sluice::ops {

namespace {

constexpr GmmKernels kGmms[] = {{kBf16Product, sm90_model::gmm, nullptr,
                                 [](int32_t, int32_t) { return size_t{0}; },
                                 [](int32_t, int32_t, PackedScales) { return size_t{0}; }}};

}  // namespace

std::vector<Implementation> implementations() {
  KernelSet kernels{};
  kernels.gmms = kGmms;
  kernels.gmmWeightGrad = sm90_model::gmmWeightGrad;
  kernels.weightGradScratchBytes = [](int32_t, int32_t) { return size_t{0}; };
  kernels.activation = sm90_model::activation;
  kernels.activationGrad = sm90_model::activationGrad;
  kernels.gatherRows = sm90_model::gatherRows;
  kernels.weightedSum = sm90_model::weightedSum;
  kernels.weightedSumF32 = sm90_model::weightedSumF32;
  kernels.sumScalars = sm90_model::sumScalars;
  kernels.add = sm90_model::add;
  kernels.scale = sm90_model::scale;
  kernels.scaleF32 = sm90_model::scaleF32;
  kernels.columnSum = sm90_model::columnSum;
  kernels.rowDot = sm90_model::rowDot;
  return {{"sm90 on the model", kernels, true}};
}

}  // namespace sluice::ops
