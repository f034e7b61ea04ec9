#include "runtime/exec/kernel_call.h"

#include <algorithm>
#include <cstring>

#include "ops/activation/tiling.h"
#include "ops/gmm/tiling.h"
#include "ops/gmm_weight_grad/tiling.h"

namespace sluice {
namespace {

// Rows of another rank's buffer, from `row` on: written in place where this process can, else gathered in
// scratch and put as one piece by send().
class RemoteRows {
 public:
  RemoteRows(const Step& step, BufferId buffer, int peer, int64_t row, int64_t rows, std::byte* scratch)
      : step_(step),
        address_(step.at(buffer)),
        peer_(peer),
        offset_(row * address_.stride),
        bytes_(rows * address_.stride) {
    std::byte* direct = step.transport->direct(peer, address_.handle);
    staged_ = direct == nullptr;
    data_ = staged_ ? scratch : direct + offset_;
  }

  std::byte* data() const { return data_; }
  int64_t stride() const { return address_.stride; }
  void send() const {
    if (staged_) step_.transport->put(peer_, address_.handle, offset_, data_, bytes_);
  }

 private:
  const Step& step_;
  const BufferAddress& address_;
  const int peer_;
  const size_t offset_;
  const size_t bytes_;
  bool staged_ = false;
  std::byte* data_ = nullptr;
};

template <class T>
T* elements(const BufferAddress& address, int64_t row) {
  return reinterpret_cast<T*>(address.data + row * address.stride);
}

template <class T>
int64_t leading(const BufferAddress& address) {
  return address.stride / static_cast<int64_t>(sizeof(T));
}

void copyRows(const std::byte* src, int64_t srcStride, std::byte* dst, int64_t dstStride, int64_t bytes,
              int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) std::memcpy(dst + row * dstStride, src + row * srcStride, bytes);
}

// Gathers the piece's pairs into the peer's `to`: pair p is element p / divisor of `from`, `stride` bytes
// apart.
void sendPairs(const Step& step, const Piece& piece, BufferId to, const std::byte* from, int64_t stride,
               int32_t divisor, std::byte* scratch) {
  const RemoteRows target(step, to, piece.peer, piece.row, piece.rows, scratch);
  step.plan->kernels().gatherRows({.src = from,
                                   .srcStride = stride,
                                   .index = step.tables->pairOf.data() + piece.pair,
                                   .divisor = divisor,
                                   .dst = target.data(),
                                   .dstStride = target.stride(),
                                   .bytes = rowBytes(step.program().at(to)),
                                   .rows = piece.rows});
  target.send();
}

void dispatch(const Step& step, const Family& family, const Task& task, std::byte* scratch) {
  const Piece& piece = step.tables->sends[task.slot];
  const BufferAddress& tokens = step.at(family.reads[0]);
  sendPairs(step, piece, family.writes[0], tokens.data, tokens.stride, step.program().topK, scratch);
  if (!family.writes[1]) return;
  const std::byte* weights = step.at(family.reads[1]).data;  // [T,K]: one float a pair
  sendPairs(step, piece, family.writes[1], weights, sizeof(float), 1, scratch);
}

void combineReturn(const Step& step, const Family& family, const Task& task, std::byte* scratch) {
  const Piece& piece = step.tables->returns[task.slot];
  for (int operand = 0; operand < 2; ++operand) {
    const BufferId from = family.reads[operand], to = family.writes[operand];
    if (!to) continue;
    const RemoteRows target(step, to, piece.peer, piece.pair, piece.rows, scratch);
    const BufferAddress& source = step.at(from);
    copyRows(elements<std::byte>(source, piece.row), source.stride, target.data(), target.stride(),
             rowBytes(step.program().at(to)), piece.rows);
    target.send();
  }
}

void gmm(const Step& step, const Family& family, const Task& task, std::byte* scratch) {
  const Slot& slot = step.tables->slots[task.slot];
  const Tiling& tiling = family.tiling;
  const bool transposed = ops::gmmTransposed(tiling);
  const ops::TileRange columns = ops::gmmTileColumns(tiling, task.tile);
  const int64_t ldb = transposed ? tiling.k : tiling.n;
  const BufferAddress& a = step.at(family.reads[0]);
  const BufferAddress& c = step.at(family.writes[0]);
  const BFloat16* weight = elements<BFloat16>(step.at(family.reads[1]), slot.expert);
  step.plan->kernels().gmm({.a = elements<BFloat16>(a, slot.row),
                            .lda = leading<BFloat16>(a),
                            .b = weight + columns.begin * (transposed ? ldb : 1),
                            .ldb = ldb,
                            .c = elements<BFloat16>(c, slot.row) + columns.begin,
                            .ldc = leading<BFloat16>(c),
                            .rows = slot.rows,
                            .n = columns.length(),
                            .k = tiling.k,
                            .transposeB = transposed,
                            .scratch = scratch});
}

void gmmWeightGrad(const Step& step, const Family& family, const Task& task, std::byte* scratch) {
  const Tiling& tiling = family.tiling;
  const auto [m, n] = ops::weightGradTile(tiling, task.tile);
  const int32_t row = step.tables->expertRow[task.slot];
  const BufferAddress& a = step.at(family.reads[0]);
  const BufferAddress& b = step.at(family.reads[1]);
  const BufferId scale = family.reads[2];
  float* grad = elements<float>(step.at(family.writes[0]), task.slot);
  step.plan->kernels().gmmWeightGrad({.a = elements<BFloat16>(a, row) + m.begin,
                                      .lda = leading<BFloat16>(a),
                                      .b = elements<BFloat16>(b, row) + n.begin,
                                      .ldb = leading<BFloat16>(b),
                                      .scale = scale ? elements<float>(step.at(scale), row) : nullptr,
                                      .c = grad + int64_t{m.begin} * tiling.n + n.begin,
                                      .ldc = tiling.n,
                                      .rows = step.tables->expertRow[task.slot + 1] - row,
                                      .m = m.length(),
                                      .n = n.length(),
                                      .scratch = scratch,
                                      .accumulate = ops::weightGradAccumulates(tiling)});
}

ops::ActivationKind activationKind(const Family& family) {
  return static_cast<ops::ActivationKind>(ops::activationKindBits(family.tiling));
}

void activation(const Step& step, const Family& family, const Task& task) {
  const Slot& slot = step.tables->slots[task.slot];
  const BufferAddress& in = step.at(family.reads[0]);
  const BufferAddress& out = step.at(family.writes[0]);
  step.plan->kernels().activation({.gateUp = elements<BFloat16>(in, slot.row),
                                   .ldGateUp = leading<BFloat16>(in),
                                   .act = elements<BFloat16>(out, slot.row),
                                   .ldAct = leading<BFloat16>(out),
                                   .rows = slot.rows,
                                   .inter = family.tiling.n,
                                   .kind = activationKind(family),
                                   .limit = ops::activationLimit(family.tiling)});
}

void activationGrad(const Step& step, const Family& family, const Task& task) {
  const Slot& slot = step.tables->slots[task.slot];
  const BufferAddress& grad = step.at(family.reads[0]);
  const BufferAddress& gateUp = step.at(family.reads[1]);
  const BufferAddress& out = step.at(family.writes[0]);
  const BufferId weight = family.reads[2], weightGrad = family.writes[1];
  step.plan->kernels().activationGrad(
      {.actGrad = elements<BFloat16>(grad, slot.row),
       .ldActGrad = leading<BFloat16>(grad),
       .gateUp = elements<BFloat16>(gateUp, slot.row),
       .ldGateUp = leading<BFloat16>(gateUp),
       .rowWeight = weight ? elements<float>(step.at(weight), slot.row) : nullptr,
       .gateUpGrad = elements<BFloat16>(out, slot.row),
       .ldGateUpGrad = leading<BFloat16>(out),
       .rowWeightGrad = weightGrad ? elements<float>(step.at(weightGrad), slot.row) : nullptr,
       .rows = slot.rows,
       .inter = family.tiling.n,
       .kind = activationKind(family),
       .limit = ops::activationLimit(family.tiling)});
}

void combineSum(const Step& step, const Family& family, const Task& task) {
  const int32_t topK = step.program().topK;
  const int32_t slotSize = step.plan->space(SpaceKind::kTokens)->slotSize;
  const int32_t begin = static_cast<int32_t>(task.slot) * slotSize;
  const int32_t tokens = std::min(slotSize, step.tables->tokens - begin);
  const int32_t* position = step.tables->positionOf.data() + int64_t{begin} * topK;
  const BufferAddress& source = step.at(family.reads[0]);
  const BufferAddress& y = step.at(family.writes[0]);
  const BufferId weight = family.reads[1];
  step.plan->kernels().weightedSum({.src = elements<BFloat16>(source, 0),
                                    .ldSrc = leading<BFloat16>(source),
                                    .position = position,
                                    .weight = weight ? elements<float>(step.at(weight), begin) : nullptr,
                                    .y = elements<BFloat16>(y, begin),
                                    .ldY = leading<BFloat16>(y),
                                    .tokens = tokens,
                                    .topK = topK,
                                    .n = family.tiling.n});
  if (!family.writes[1]) return;
  const BufferAddress& scalars = step.at(family.reads[2]);
  float* out = elements<float>(step.at(family.writes[1]), begin);
  for (int32_t pair = 0; pair < tokens * topK; ++pair)
    out[pair] = position[pair] < 0 ? 0.0f : *elements<float>(scalars, position[pair]);
}

}  // namespace

void callKernel(const Step& step, const Task& task, std::byte* scratch) {
  const Family& family = step.program().at(task.family);
  switch (family.op) {
    case OpKind::kDispatch:
      return dispatch(step, family, task, scratch);
    case OpKind::kGmm:
      return gmm(step, family, task, scratch);
    case OpKind::kGmmWeightGrad:
      return gmmWeightGrad(step, family, task, scratch);
    case OpKind::kActivation:
      return activation(step, family, task);
    case OpKind::kActivationGrad:
      return activationGrad(step, family, task);
    case OpKind::kCombineReturn:
      return combineReturn(step, family, task, scratch);
    case OpKind::kCombineSum:
      return combineSum(step, family, task);
    case OpKind::kAdd:
    case OpKind::kScale:
    case OpKind::kGmmActivation:
    case OpKind::kGmmActivationGrad:
      break;
  }
}

}  // namespace sluice
