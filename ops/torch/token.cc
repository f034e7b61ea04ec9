#include "ops/torch/token.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cstring>

#include "ops/torch/errors.h"

namespace sluice {
namespace {

struct TokenContent {
  const LayerState* state;
  HeldStep step;
};

}  // namespace

at::Tensor makeToken(c10::intrusive_ptr<torch::CustomClassHolder> owner, LayerState& state, HeldStep step) {
  auto* content = new TokenContent{&state, step};
  const auto release = [owner = std::move(owner), &state, held = step.held](void* data) {
    state.savedSets().release(held);
    delete static_cast<TokenContent*>(data);
  };
  return at::from_blob(content, {static_cast<int64_t>(sizeof *content)}, release,
                       at::TensorOptions(at::kByte));
}

HeldStep findHeldStep(const at::Tensor& token, const LayerState& state) {
  TokenContent content;
  if (!token.defined() || token.scalar_type() != at::kByte || token.numel() != int64_t{sizeof content} ||
      !token.is_contiguous() || !token.device().is_cpu())
    throwRuntime("the token of the forward pass was replaced by another tensor");
  std::memcpy(static_cast<void*>(&content), token.data_ptr(), sizeof content);
  if (content.state != &state) throwRuntime("the token of the forward pass belongs to another layer");
  if (!state.savedSets().isHeld(content.step.held))
    throwRuntime(
        fmt::format("saved set {} was released: hooks on saved tensors must keep the tensors that "
                    "they are given",
                    content.step.held.set));
  return content.step;
}

}  // namespace sluice
