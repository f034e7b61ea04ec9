// The kernels of a GPU of sm_90 (ops/gpu), on the model of its hardware, as kernels of an instruction set.
//
// Each builds the records that the runtime makes of a task (runtime/gpu/translator.h). There are none for
// codes, and none that round factors. What the model finds wrong is thrown as std::runtime_error.
#pragma once

#include "runtime/abi/kernels.h"

namespace sluice::ops::sm90_model {

void gmm(const GmmArgs& args);
void gmmWeightGrad(const GmmWeightGradArgs& args);
void activation(const ActivationArgs& args);
void activationGrad(const ActivationGradArgs& args);
void gatherRows(const GatherRowsArgs& args);
void weightedSum(const WeightedSumArgs& args);
void weightedSumF32(const WeightedSumF32Args& args);
void sumScalars(const SumScalarsArgs& args);
void add(const AddArgs& args);
void scale(const ScaleArgs& args);
void scaleF32(const ScaleF32Args& args);
void columnSum(const ColumnSumArgs& args);
void rowDot(const RowDotArgs& args);

}  // namespace sluice::ops::sm90_model
