#include "compiler/graph/ops.h"

#include <array>

namespace sluice {

namespace {

constexpr OpPort kRouting = {.name = "routing", .routing = true};

constexpr OpPort kRouteIn[] = {{"expert_ids"}};
constexpr OpPort kRouteOut[] = {kRouting};

constexpr OpPort kDispatchIn[] = {{"tokens"}, kRouting, {"weights", false}};
constexpr OpPort kDispatchOut[] = {{"rows"}, {"row_weights", false}};

constexpr OpPort kGmmIn[] = {{"rows"}, {"weight"}};
constexpr OpPort kGmmOut[] = {{"product"}};

constexpr OpPort kGmmWeightGradIn[] = {{"a"}, {"b"}, {"row_scale", false}};
constexpr OpPort kGmmWeightGradOut[] = {{"grad"}};

constexpr OpPort kActivationIn[] = {{"gate_up"}};
constexpr OpPort kActivationOut[] = {{"act"}};

constexpr OpPort kActivationGradIn[] = {{"act_grad"}, {"gate_up"}, {"row_weights", false}};
constexpr OpPort kActivationGradOut[] = {{"gate_up_grad"}, {"row_weight_grad", false}};

constexpr OpPort kCombineIn[] = {{"rows"}, kRouting, {"weights", false}, {"scalars", false}};
constexpr OpPort kCombineOut[] = {{"tokens"}, {"token_scalars", false}};

constexpr OpPort kAddIn[] = {{"a"}, {"b"}};
constexpr OpPort kAddOut[] = {{"sum"}};

constexpr OpPort kScaleIn[] = {{"value"}};
constexpr OpPort kScaleOut[] = {{"scaled"}};

// By GraphOp.
constexpr std::array<OpSchema, 9> kSchemas = {{
    {GraphOp::kRoute, "route", kRouteIn, kRouteOut},
    {GraphOp::kDispatch, "dispatch", kDispatchIn, kDispatchOut},
    {.op = GraphOp::kGmm,
     .name = "gmm",
     .inputs = kGmmIn,
     .outputs = kGmmOut,
     .hasTranspose = true,
     .alpha = AlphaField::kOptional},
    {.op = GraphOp::kGmmWeightGrad,
     .name = "gmm_weight_grad",
     .inputs = kGmmWeightGradIn,
     .outputs = kGmmWeightGradOut,
     .hasAccumulate = true,
     .alpha = AlphaField::kOptional},
    {.op = GraphOp::kActivation,
     .name = "activation",
     .inputs = kActivationIn,
     .outputs = kActivationOut,
     .hasKind = true},
    {.op = GraphOp::kActivationGrad,
     .name = "activation_grad",
     .inputs = kActivationGradIn,
     .outputs = kActivationGradOut,
     .hasKind = true},
    {GraphOp::kCombine, "combine", kCombineIn, kCombineOut},
    {GraphOp::kAdd, "add", kAddIn, kAddOut},
    {.op = GraphOp::kScale,
     .name = "scale",
     .inputs = kScaleIn,
     .outputs = kScaleOut,
     .alpha = AlphaField::kRequired},
}};

}  // namespace

const OpSchema& schemaOf(GraphOp op) { return kSchemas[static_cast<size_t>(op)]; }

const OpSchema* findOp(std::string_view name) {
  for (const OpSchema& schema : kSchemas) {
    if (schema.name == name) return &schema;
  }
  return nullptr;
}

std::string opNames() {
  std::string names;
  for (const OpSchema& schema : kSchemas) {
    if (!names.empty()) names += ", ";
    names += schema.name;
  }
  return names;
}

}  // namespace sluice
