// Work on rows by math, without products: RowWork (row_plan.h).
//
// Both warpgroups do their part of a task. Each element is the work of one thread, or one warp, in an order
// that depends on the task only. Threads next to each other read parts of 16 bytes next to each other.
#pragma once

#include "ops/gpu/activation_rows.h"
#include "ops/gpu/column_sum.h"
#include "ops/gpu/hw.h"
#include "ops/gpu/row_numbers.h"
#include "ops/gpu/row_walk.h"
#include "ops/gpu/stage_rows.h"
#include "runtime/abi/gpu/row_plan.h"

namespace sluice::gpu {

// ---- The sums of a combine.

// Goes over the rows that make up a row of the result: the parts of each pair, in order.
struct TermWalk {
  int pair, part;
  SLUICE_DEVICE void advance(int parts) {
    if (++part < parts) return;
    part = 0;
    ++pair;
  }
};

template <class Number>
SLUICE_DEVICE void sumOfPart(const RowWork* work, int row, int piece, int columns, Values<Number>& sum) {
  constexpr int kInFlight = 4;
  const int topK = load(&work->topK), parts = load(&work->parts);
  const int64_t partRows = load(&work->partRows), firstPair = int64_t{row} * topK;
  const int32_t* const positions = load(&work->position) + firstPair;
  const std::byte* const weights = load(&work->in[1]);
  Values<Number> ofParts = {};
  TermWalk next = {0, 0};
  while (next.pair < topK) {
    Part raw[kInFlight] = {};
    float weight[kInFlight];
    int part[kInFlight];  // -1: none
    SLUICE_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const int position = next.pair < topK ? load(&positions[next.pair]) : -1;
      part[i] = position < 0 ? -1 : next.part;
      weight[i] = 1;
      if (position >= 0) {
        raw[i] = loadPart<Number>(inRow(work, 0, position + next.part * partRows), piece, columns);
        weight[i] = floatAt(weights, firstPair + next.pair, 1);
      }
      next.advance(parts);
    }
    SLUICE_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      if (part[i] < 0) continue;
      SLUICE_UNROLL
      for (int n = 0; n < Number::kCount; ++n) {
        const float value = Number::unpackValue(raw[i], n);
        ofParts[n] = part[i] == 0 ? value : ofParts[n] + value;
        if (part[i] == parts - 1) sum[n] += weight[i] * ofParts[n];
      }
    }
  }
}

template <class Number>
SLUICE_DEVICE void sumWeighted(const RowWork* work) {
  const std::byte* const bias = load(&work->in[2]);
  const bool isOneRow =
      load(&work->topK) == 1 && load(&work->parts) == 1 && load(&work->in[1]) == nullptr && bias == nullptr;
  forParts<Number>(work, [work, bias, isOneRow](int row, int piece, int columns) {
    Part result = {};
    if (isOneRow) {  // bits pass unchanged and need not be numbers
      const int position = load(&load(&work->position)[row]);
      if (position >= 0) result = loadPart<Number>(inRow(work, 0, position), piece, columns);
    } else {
      Values<Number> sum = {};
      sumOfPart<Number>(work, row, piece, columns, sum);
      if (bias != nullptr) {
        const Part last = loadPart<Number>(bias, piece, columns);
        SLUICE_UNROLL
        for (int n = 0; n < Number::kCount; ++n) sum[n] += Number::unpackValue(last, n);
      }
      result = Number::packPart(sum);
    }
    storePart<Number>(outRow(work, 0, row), piece, columns, result);
  });
}

SLUICE_DEVICE void sumScalars(const RowWork* work) {
  const int parts = load(&work->parts);
  const int64_t partFloats = load(&work->partRows), pairs = int64_t{load(&work->rows)} * load(&work->topK);
  auto* const out = reinterpret_cast<float*>(load(&work->out[0]));
  for (int64_t pair = mathThread(); pair < pairs; pair += kMathThreads) {
    const int position = load(&load(&work->position)[pair]);
    float sum = 0;
    for (int part = 0; part < parts && position >= 0; ++part) {
      const float value = floatAt(load(&work->in[0]), position + part * partFloats);
      sum = part == 0 ? value : sum + value;  // bits of a single one pass unchanged
    }
    store(&out[pair], sum);
  }
}

// ---- Element by element.

SLUICE_DEVICE void addRows(const RowWork* work) {
  forParts<Bf16>(work, [work](int row, int piece, int columns) {
    const Part a = loadPart<Bf16>(inRow(work, 0, row), piece, columns);
    const Part b = loadPart<Bf16>(inRow(work, 1, row), piece, columns);
    Values<Bf16> sum;
    SLUICE_UNROLL
    for (int n = 0; n < Bf16::kCount; ++n) sum[n] = Bf16::unpackValue(a, n) + Bf16::unpackValue(b, n);
    storePart<Bf16>(outRow(work, 0, row), piece, columns, Bf16::packPart(sum));
  });
}

template <class Number>
SLUICE_DEVICE void scaleRows(const RowWork* work) {
  const float alpha = load(&work->alpha);
  const std::byte* const weights = load(&work->in[1]);
  forParts<Number>(work, [work, alpha, weights](int row, int piece, int columns) {
    Part raw = loadPart<Number>(inRow(work, 0, row), piece, columns);
    if (alpha != 1 || weights != nullptr) {  // else bits pass unchanged and need not be numbers
      const float factor = alpha * floatAt(weights, row, 1);
      Values<Number> scaled;
      SLUICE_UNROLL
      for (int n = 0; n < Number::kCount; ++n) scaled[n] = factor * Number::unpackValue(raw, n);
      raw = Number::packPart(scaled);
    }
    storePart<Number>(outRow(work, 0, row), piece, columns, raw);
  });
}

// ---- A number per row.

SLUICE_DEVICE void dotRows(const RowWork* work) {
  const int rows = load(&work->rows), columns = load(&work->columns);
  const std::byte* const vector = load(&work->in[1]);
  auto* const out = reinterpret_cast<float*>(load(&work->out[0]));
  for (int row = mathWarp(); row < rows; row += kMathWarps) {
    Values<Bf16> sums = {};
    for (int piece = laneIndex(); piece < countParts<Bf16>(columns); piece += 32) {
      const Part a = loadPart<Bf16>(inRow(work, 0, row), piece, columns);
      const Part b = loadPart<Bf16>(vector, piece, columns);
      SLUICE_UNROLL
      for (int n = 0; n < Bf16::kCount; ++n) sums[n] += Bf16::unpackValue(a, n) * Bf16::unpackValue(b, n);
    }
    float sum = 0;
    SLUICE_UNROLL
    for (int n = 0; n < Bf16::kCount; ++n) sum += sums[n];
    sum = sumOfWarp(sum);
    const std::byte* const addends = load(&work->in[2]);
    if (laneIndex() == 0) store(&out[row], addends == nullptr ? sum : floatAt(addends, row) + sum);
  }
}

// The whole task for a warpgroup of math, with kColumnSumBytes of shared memory of its own. Afterwards its
// thread 0 may signal what it stored.
template <int kActivation>
SLUICE_DEVICE_CALL void runRowWork(const RowWork* work, std::byte* scratch) {
  const bool isFp32 = load(&work->isFp32);
  switch (load(&work->op)) {
    case RowOp::kWeightedSum:
      isFp32 ? sumWeighted<Fp32>(work) : sumWeighted<Bf16>(work);
      break;
    case RowOp::kScalarSum:
      sumScalars(work);
      break;
    case RowOp::kAdd:
      addRows(work);
      break;
    case RowOp::kScale:
      isFp32 ? scaleRows<Fp32>(work) : scaleRows<Bf16>(work);
      break;
    case RowOp::kColumnSum:
      sumColumns(work, scratch);
      break;
    case RowOp::kRowDot:
      dotRows(work);
      break;
    case RowOp::kActivation:
      activateRows<kActivation>(work);
      break;
    case RowOp::kActivationGrad:
      activationGradOfRows<kActivation>(work);
      break;
  }
  endStores();  // what all threads stored
}

}  // namespace sluice::gpu
