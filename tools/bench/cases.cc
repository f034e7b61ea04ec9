#include "tools/bench/cases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/mesh.h"
#include "tools/moe/inputs.h"
#include "tools/moe/random.h"

namespace sluice::tools {
namespace {

struct Model {
  std::string_view name;
  int64_t hidden, inter, experts, topK;
};

// Routed experts of one layer, from the published configurations of the models.
constexpr Model kModels[] = {
    {"deepseek-v3", 7168, 2048, 256, 8},
    {"qwen3-235b", 4096, 1536, 128, 8},
    {"qwen3-30b", 2048, 768, 128, 8},
    {"mixtral-8x7b", 4096, 14336, 8, 2},
};

Expected<Model> findModel(std::string_view name) {
  for (const Model& model : kModels)
    if (model.name == name) return model;
  return Error{fmt::format("found model '{}', expected one of {}", name, fmt::join(modelNames(), ", "))};
}

RowsCase evenCase(std::string name, int64_t hidden, int64_t inter, int64_t experts, int64_t rows) {
  return {std::move(name), hidden, inter, std::vector<int64_t>(static_cast<size_t>(experts), rows / experts)};
}

Status checkRanks(const Model& model, int64_t ranks) {
  if (ranks >= 1 && ranks <= model.experts) return {};
  return Error{fmt::format("{} ranks cannot share the {} experts of {}, expected 1 to {}", ranks,
                           model.experts, model.name, model.experts)};
}

LayerCase routedLayer(std::string name, const Model& model, int64_t tokens, int ranks) {
  return {.name = std::move(name),
          .hidden = model.hidden,
          .inter = model.inter,
          .experts = model.experts,
          .topK = model.topK,
          .tokens = tokens,
          .ranks = ranks};
}

}  // namespace

std::string_view passName(Pass pass) { return pass == Pass::kForward ? "forward" : "backward"; }

int64_t RowsCase::allRows() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }

std::optional<RowsCase> rowsCase(std::string_view name) {
  if (name == "a") return evenCase("a", 2048, 768, 16, 4096);
  if (name == "b") return evenCase("b", 7168, 2048, 4, 2048);
  if (name == "c") return evenCase("c", 1024, 512, 8, 1024);
  if (name == "d")
    return RowsCase{
        "d", 2048, 768, {179, 96, 89, 125, 104, 209, 1271, 251, 0, 114, 629, 419, 139, 0, 157, 314}};
  if (name == "e") return evenCase("e", 2048, 768, 16, 64);
  if (name == "f") return evenCase("f", 4096, 1536, 8, 8192);
  if (name == "tiny") return RowsCase{"tiny", 64, 48, {37, 0, 5, 22}};
  return std::nullopt;
}

LayerCase layerCase(int ranks) {
  return routedLayer(fmt::format("layer, {} ranks", ranks), {"", 2048, 768, 64, 8}, 512, ranks);
}

LayerCase tinyLayer(int ranks) {
  return routedLayer(fmt::format("tiny, {} ranks", ranks), {"", 64, 48, 16, 2}, 64, ranks);
}

std::optional<GpuCase> gpuCase(std::string_view name) {
  if (std::optional<RowsCase> rows = rowsCase(name)) return GpuCase{rows->name, std::move(*rows), {}};
  if (name == "dense") return GpuCase{"dense", evenCase("dense", 8192, 4096, 1, 8192), {}};
  if (name == "tiny-layer") return GpuCase{"tiny-layer", {}, tinyLayer(1)};
  for (const int64_t inter : {2048, 1024, 512, 256})
    if (name == fmt::format("n{}", inter))
      return GpuCase{
          std::string(name), {}, routedLayer(std::string(name), {"", 4096, inter, 64, 4}, 32768, 1)};
  return std::nullopt;
}

const std::vector<std::string>& gpuCaseNames() {
  static const std::vector<std::string> names = {"a",     "b",     "c",     "d",    "e",   "f",
                                                 "dense", "n2048", "n1024", "n512", "n256"};
  return names;
}

Expected<std::vector<LayerCase>> linearCases(const LinearSize& size, int ranks, bool sameTokens) {
  if (!sameTokens && size.rows % ranks != 0)
    return Error{fmt::format("{} ranks cannot share {} tokens evenly", ranks, size.rows)};
  LayerCase layer{.name = {},
                  .hidden = size.in,
                  .inter = size.out,
                  .tokens = sameTokens ? size.rows : size.rows / ranks,
                  .ranks = ranks,
                  .tp = ranks,
                  .sameTokens = sameTokens};
  std::vector<LayerCase> cases;
  for (LayerKind kind : {LayerKind::kColumnParallel, LayerKind::kRowParallel}) {
    const bool column = kind == LayerKind::kColumnParallel;
    const int64_t shared = column ? size.out : size.in;
    if (shared % ranks != 0)
      return Error{fmt::format("{} ranks cannot share {} columns {} evenly", ranks, shared,
                               column ? "of the output" : "of the input")};
    layer.name = column ? "column parallel" : "row parallel";
    layer.kind = kind;
    cases.push_back(layer);
  }
  return cases;
}

std::vector<std::string> modelNames() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

Expected<double> skewExponent(std::string_view skew) {
  const Expected<RoutingSpec> routing = parseRouting(skew);
  if (routing && routing->exponent <= 10 &&
      (routing->kind == RoutingKind::kUniform || routing->kind == RoutingKind::kZipf))
    return routing->exponent;
  return Error{fmt::format("found skew '{}', expected uniform or zipf:S with S from 0 to 10", skew)};
}

Expected<RowsCase> modelRows(std::string_view name, int64_t tokens, int64_t ep, std::string_view skew) {
  const Expected<Model> model = findModel(name);
  if (!model) return model.error();
  const Expected<double> exponent = skewExponent(skew);
  if (!exponent) return exponent.error();
  if (Status status = checkRanks(*model, ep); !status) return status.error();
  const std::vector<int64_t> all = spreadRows(tokens * ep, model->topK, model->experts, *exponent);
  RowsCase most;
  int64_t maxRows = -1;
  const ExpertDeal deal{{static_cast<int32_t>(ep)}, static_cast<int32_t>(model->experts)};
  for (int32_t rank = 0; rank < deal.mesh.peers(); ++rank) {
    RowsCase mine{fmt::format("{}, {} tokens per rank, rank {} of {}, {}", name, tokens, rank, ep, skew),
                  model->hidden, model->inter,
                  std::vector<int64_t>(all.begin() + deal.first(rank), all.begin() + deal.first(rank + 1))};
    if (mine.allRows() <= maxRows) continue;
    maxRows = mine.allRows();
    most = std::move(mine);
  }
  return most;
}

Expected<LayerCase> modelLayer(std::string_view name, int64_t tokens, int ranks, std::string_view skew) {
  const Expected<Model> model = findModel(name);
  if (!model) return model.error();
  if (const Expected<double> exponent = skewExponent(skew); !exponent) return exponent.error();
  if (Status status = checkRanks(*model, ranks); !status) return status.error();
  LayerCase layer = routedLayer(
      fmt::format("{}, {} tokens per rank, {} ranks, {}", name, tokens, ranks, skew), *model, tokens, ranks);
  layer.skew = skew;
  return layer;
}

std::vector<int64_t> spreadRows(int64_t tokens, int64_t topK, int64_t experts, double exponent) {
  const auto count = static_cast<size_t>(experts);
  std::vector<double> weight(count);
  for (size_t n = 0; n < count; ++n) weight[n] = std::pow(static_cast<double>(n + 1), -exponent);
  // from the most popular expert on, each takes its share of the remaining pairs, up to all tokens
  std::vector<int64_t> rows(count);
  int64_t left = tokens * std::min(topK, experts);
  double weightLeft = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (size_t n = 0; n < count; ++n) {
    const auto share = std::llround(static_cast<double>(left) * weight[n] / weightLeft);
    const int64_t others =
        (experts - static_cast<int64_t>(n) - 1) * tokens;  // the most that the rest can take
    rows[n] = std::max(std::min<int64_t>({share, tokens, left}), left - others);
    left -= rows[n];
    weightLeft -= weight[n];
  }
  Random random(1, 0);
  for (size_t i = count; i > 1; --i)
    std::swap(rows[i - 1], rows[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  return rows;
}

Work countWork(const RowsCase& c, Pass pass, double weightBytes, bool trainsWeights) {
  const auto hidden = static_cast<double>(c.hidden), inter = static_cast<double>(c.inter);
  const auto rows = static_cast<double>(c.allRows());
  const auto busy =
      static_cast<double>(std::count_if(c.rows.begin(), c.rows.end(), [](int64_t r) { return r > 0; }));
  const double elements = 3 * hidden * inter;  // of the weights of one expert
  const double rowBytes = 2 * rows * hidden, productBytes = 4 * rows * inter;
  const double flops = 2 * elements * rows;
  if (pass == Pass::kForward)
    return {flops, weightBytes * busy * elements + rowBytes, rowBytes + productBytes};
  if (!trainsWeights) return {flops, weightBytes * busy * elements + rowBytes + productBytes, rowBytes};
  return {2 * flops, weightBytes * busy * elements + 2 * rowBytes + productBytes,
          4 * static_cast<double>(c.experts()) * elements + rowBytes};
}

}  // namespace sluice::tools
