#include "compiler/graph/ops.h"

namespace sluice {

namespace {

constexpr OpPort kRouting = {.name = "routing", .routing = true};

constexpr OpPort kRouteIn[] = {{"expert_ids", false}, {"placement", false}};
constexpr OpPort kRouteOut[] = {kRouting};

constexpr OpPort kDispatchIn[] = {{"tokens"}, kRouting, {"weights", false}};
constexpr OpPort kDispatchOut[] = {{"rows"}, {"row_weights", false}};

constexpr OpPort kDispatchCodesIn[] = {{"codes"}, {"scales"}, kRouting};
constexpr OpPort kDispatchCodesOut[] = {{"rows"}, {"row_scales"}};

constexpr OpPort kGmmIn[] = {{"rows"},
                             {"weight"},
                             {"bias", false},
                             {"row_scale", false},
                             {"weight_scale", false},
                             {"weight_zero", false},
                             {"row_amax", false},
                             {"weight_amax", false}};
constexpr OpPort kGmmOut[] = {{"product"}};

constexpr OpPort kGmmWeightGradIn[] = {{"a"},
                                       {"b"},
                                       {"row_scale", false},
                                       {"a_amax", false},
                                       {"b_amax", false},
                                       {"scales", false},
                                       {"end_scales", false}};
constexpr OpPort kGmmWeightGradOut[] = {{"grad"}};

constexpr OpPort kEncodeIn[] = {{"value"}, {"amax", false}, {"value_scale", false}};
constexpr OpPort kEncodeOut[] = {{"codes"}, {"scales", false}, {"end_scales", false}};

constexpr OpPort kAmaxIn[] = {{"a"}};
constexpr OpPort kAmaxOut[] = {{"amax"}};

constexpr OpPort kColumnSumIn[] = {{"a"}, {"row_scale", false}};
constexpr OpPort kColumnSumOut[] = {{"sums"}};

constexpr OpPort kRowDotIn[] = {{"a"}, {"b"}, {"addend", false}};
constexpr OpPort kRowDotOut[] = {{"dots"}};

constexpr OpPort kActivationIn[] = {{"gate_up"}};
constexpr OpPort kActivationOut[] = {{"act"}};

constexpr OpPort kActivationGradIn[] = {{"act_grad"}, {"gate_up"}, {"row_weights", false}};
constexpr OpPort kActivationGradOut[] = {
    {"gate_up_grad"}, {"row_weight_grad", false}, {"weighted_act", false, false, "gives_act"}};

constexpr OpPort kCombineIn[] = {{"rows"}, kRouting, {"weights", false}, {"scalars", false}, {"bias", false}};
constexpr OpPort kCombineOut[] = {{"tokens"}, {"token_scalars", false}};

constexpr OpPort kAddIn[] = {{"a"}, {"b"}};
constexpr OpPort kAddOut[] = {{"sum"}};

constexpr OpPort kScaleIn[] = {{"value"}, {"row_weights", false}};
constexpr OpPort kScaleOut[] = {{"scaled"}};

constexpr OpPort kQuantizeIn[] = {{"value"}, {"column_scale", false}};
constexpr OpPort kQuantizeOut[] = {{"codes"}, {"scale"}};

constexpr OpSchema kSchemas[] = {
    {"route", kRouteIn, kRouteOut},
    {"dispatch", kDispatchIn, kDispatchOut},
    {"dispatch_codes", kDispatchCodesIn, kDispatchCodesOut},
    {"gmm", kGmmIn, kGmmOut},
    {"gmm_weight_grad", kGmmWeightGradIn, kGmmWeightGradOut},
    {"amax", kAmaxIn, kAmaxOut},
    {"encode", kEncodeIn, kEncodeOut},
    {"column_sum", kColumnSumIn, kColumnSumOut},
    {"row_dot", kRowDotIn, kRowDotOut},
    {"activation", kActivationIn, kActivationOut},
    {"activation_grad", kActivationGradIn, kActivationGradOut},
    {"combine", kCombineIn, kCombineOut},
    {"add", kAddIn, kAddOut},
    {"scale", kScaleIn, kScaleOut},
    {"quantize", kQuantizeIn, kQuantizeOut},
};

}  // namespace

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
