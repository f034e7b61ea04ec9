#include "tools/moe/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/one_line.h"
#include "runtime/program/op_table.h"
#include "runtime/routing/placement.h"
#include "tools/moe/random.h"
#include "tools/moe/shard.h"

namespace sluice::tools {
namespace {

// Random streams of one seed: tensors do not depend on each other; every rank or group has its own.
enum class Stream : uint64_t { kTokens, kPopularity, kX, kDy, kIds, kWeights, kGateUp, kDown };

constexpr std::pair<std::string_view, Stream> kStreamOfName[] = {
    {"x", Stream::kX},
    {"dy", Stream::kDy},
    {"expert_ids", Stream::kIds},
    {"expert_weights", Stream::kWeights},
    {"gate_up_weight", Stream::kGateUp},
    {"down_weight", Stream::kDown},
};

Random randomStream(const InputsSpec& spec, Stream stream, int owner) {
  return {spec.seed, static_cast<uint64_t>(stream) << 32 | static_cast<uint32_t>(owner)};
}

// The stream of the tensor `name`. Names without a fixed stream use their hash (FNV-1a); its highest bit
// keeps these apart from the fixed ones.
Random randomStream(const InputsSpec& spec, std::string_view name, int owner) {
  for (const auto& [known, stream] : kStreamOfName)
    if (name == known) return randomStream(spec, stream, owner);
  uint64_t hash = 1469598103934665603u;
  for (const char letter : name) hash = (hash ^ static_cast<uint8_t>(letter)) * 1099511628211u;
  return {spec.seed, (hash | uint64_t{1} << 63) + static_cast<uint32_t>(owner)};
}

template <class T>
std::optional<T> parseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Part `part` of a tensor of random numbers, which are in the order of the whole tensor.
void fillNormal(Tensor& tensor, double scale, Random random, Sharding sharding, int tp, int part) {
  if (sharding == Sharding::kWhole) tp = 1, part = 0;
  const auto factor = static_cast<float>(scale);
  const auto fill = [&](int64_t i) {
    if (tensor.type() == DType::kU8) return setElement(DType::kU8, tensor.data(), i, random.below(256));
    if (tensor.type() == DType::kF8_E4M3) {  // no NaN
      const auto code = static_cast<uint8_t>(random.below(254));
      tensor.as<uint8_t>()[i] = static_cast<uint8_t>(code < 127 ? code : code + 1);
      return;
    }
    const float value = random.normal() * factor;
    setElement(tensor.type(), tensor.data(), i,
               isCodes(tensor.type()) ? std::clamp(std::nearbyint(value), -127.0F, 127.0F) : value);
  };
  if (sharding == Sharding::kPartial) {
    random.skip(part);
    for (int64_t i = part; i < tensor.elements(); i += tp, random.skip(tp - 1)) fill(i);
    return;
  }
  const Stretches stretches = findStretches(sharding, tensor.shape());
  for (int64_t block = 0; block < stretches.blocks; ++block) {
    random.skip(part * stretches.length);
    for (int64_t i = 0; i < stretches.length; ++i) fill(block * stretches.length + i);
    random.skip((tp - 1 - part) * stretches.length);
  }
}

// Scales or zeros around `scale`, the same at all shards of a group.
void fillScales(Tensor& tensor, double scale, Random random) {
  const bool areCodes = tensor.type() == DType::kF8_E8M0 || tensor.type() == DType::kF8_E4M3;
  const float span = areCodes ? 1.5F : 0.5F;  // at least two powers of two
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const float factor = 1 - span / 2 + span * static_cast<float>(random.uniform());
    setElement(tensor.type(), tensor.data(), i, static_cast<float>(scale) * factor);
  }
}

// Log of the probability of each expert, up to a constant.
std::vector<double> expertLogWeights(const TaskProgram& program, const InputsSpec& spec) {
  const RoutingSpec& routing = spec.routing;
  std::vector<double> weights(static_cast<size_t>(program.experts - program.spare), 0.0);
  if (routing.kind == RoutingKind::kHalfEmpty) {
    const auto used = std::max<std::ptrdiff_t>(program.topK, std::ssize(weights) / 2);
    std::fill(weights.begin() + used, weights.end(), -HUGE_VAL);
  }
  if (routing.kind != RoutingKind::kZipf) return weights;
  Random random = randomStream(spec, Stream::kPopularity, 0);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = -routing.exponent * std::log(static_cast<double>(i + 1));
  for (size_t i = weights.size(); i > 1; --i)
    std::swap(weights[i - 1], weights[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  return weights;
}

// Draws distinct experts with the given weights, one after another without replacement: those with the
// largest log of the weight + Gumbel noise.
class ExpertDraw {
 public:
  explicit ExpertDraw(const std::vector<double>& logWeights) {
    for (size_t e = 0; e < logWeights.size(); ++e)
      if (logWeights[e] != -HUGE_VAL)
        experts_.push_back({static_cast<int32_t>(e), logWeights[e], std::exp(-logWeights[e])});
  }

  void draw(Random& random, std::span<int32_t> ids) {
    if (ids.empty()) return random.skip(std::ssize(experts_));
    best_.clear();
    double limit = HUGE_VAL;
    for (const Expert& expert : experts_) {
      const double uniform = random.uniform();
      // -log(u) is at least 1 - u: no logarithm for the many experts that are not among the best
      if ((1 - uniform) * expert.inverseWeight > limit) continue;
      const std::pair key(expert.logWeight - std::log(-std::log(uniform)), expert.id);
      if (best_.size() == ids.size()) {
        if (key < best_.front()) continue;
        std::ranges::pop_heap(best_, std::greater<>());
        best_.pop_back();
      }
      best_.push_back(key);
      std::ranges::push_heap(best_, std::greater<>());
      if (best_.size() == ids.size()) limit = std::exp(-best_.front().first) * (1 + kRoundingMargin);
    }
    std::ranges::sort_heap(best_, std::greater<>());
    for (size_t k = 0; k < ids.size(); ++k) ids[k] = best_[k].second;
  }

 private:
  static constexpr double kRoundingMargin = 1e-9;  // far above what log and exp round
  struct Expert {
    int32_t id = 0;
    double logWeight = 0;
    double inverseWeight = 0;
  };
  std::vector<Expert> experts_;
  std::vector<std::pair<double, int32_t>> best_;
};

// The expert that every token has, of those that have one.
int32_t hotExpert(const TaskProgram& program, const InputsSpec& spec) {
  return static_cast<int32_t>(
      randomStream(spec, Stream::kPopularity, 0).below(program.experts - program.spare));
}

// The experts of the first rank, or group, where ids name experts.
int32_t firstExperts(const TaskProgram& program) {
  return ExpertDeal{program.mesh, program.experts - program.spare}.of(0);
}

// Pairs of a token with experts of the first rank, on average.
double hotPairs(const TaskProgram& program, double factor) { return factor * program.topK / program.mesh.ep; }

// For the rows that this routing gives each expert, up to a factor.
void fillPlacement(const TaskProgram& program, const InputsSpec& spec, Tensor& tensor) {
  std::vector<double> rows = expertLogWeights(program, spec);
  for (double& weight : rows) weight = std::exp(weight);
  if (spec.routing.kind == RoutingKind::kOneHot) {
    std::fill(rows.begin(), rows.end(), 0.0);
    rows[static_cast<size_t>(hotExpert(program, spec))] = 1;
  }
  if (spec.routing.kind == RoutingKind::kHotRank) {
    const int32_t first = firstExperts(program);
    const double pairs = hotPairs(program, spec.routing.factor), rest = program.topK - pairs;
    for (int32_t e = 0; e < static_cast<int32_t>(rows.size()); ++e)
      rows[static_cast<size_t>(e)] =
          e < first ? pairs / first : rest / static_cast<double>(std::ssize(rows) - first);
  }
  const std::vector<int32_t> experts = choosePlaces(rows, program.deal());
  std::copy(experts.begin(), experts.end(), tensor.as<int32_t>());
}

// Each token has the pairs of the average with the first rank, rounded so that the sum over tokens is right.
void fillHotRank(const TaskProgram& program, double factor, std::span<int32_t> all, Random& random) {
  const auto k = static_cast<size_t>(program.topK);
  const auto experts = static_cast<size_t>(program.experts - program.spare);
  std::vector<double> hot(experts, -HUGE_VAL), others(experts, 0.0);
  for (size_t e = 0; e < static_cast<size_t>(firstExperts(program)); ++e) std::swap(hot[e], others[e]);
  const double pairs = hotPairs(program, factor);
  ExpertDraw hotDraw(hot), otherDraw(others);
  double sum = random.uniform();  // ranks round different tokens up
  for (size_t t = 0; t < all.size(); t += k) {
    const double before = std::floor(sum);
    sum += pairs;
    const auto here = static_cast<size_t>(std::floor(sum) - before);
    hotDraw.draw(random, all.subspan(t, here));
    otherDraw.draw(random, all.subspan(t + here, k - here));
  }
}

void fillIds(const TaskProgram& program, const InputsSpec& spec, Tensor& tensor, Random random) {
  const auto k = static_cast<size_t>(program.topK);
  const std::span<int32_t> all(tensor.as<int32_t>(), static_cast<size_t>(tensor.elements()));
  if (spec.routing.kind == RoutingKind::kOneHot) {
    const int32_t hot = hotExpert(program, spec);
    for (size_t i = 0; i < all.size(); ++i) all[i] = i % k == 0 ? hot : -1;
    return;
  }
  if (spec.routing.kind == RoutingKind::kHotRank)
    return fillHotRank(program, spec.routing.factor, all, random);
  ExpertDraw draw(expertLogWeights(program, spec));
  for (size_t t = 0; t < all.size(); t += k) draw.draw(random, all.subspan(t, k));
  if (spec.routing.kind != RoutingKind::kMasked) return;
  for (int32_t& id : all)
    if (random.below(4) == 0) id = -1;
}

// A softmax of normal numbers over the K experts of each token.
void fillWeights(const TaskProgram& program, Tensor& tensor, Random random) {
  auto* data = tensor.as<float>();
  const int64_t k = program.topK;
  for (int64_t t = 0; t < tensor.elements(); t += k) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += data[t + j] = std::exp(random.normal());
    for (int64_t j = 0; j < k; ++j) data[t + j] /= sum;
  }
}

// The first product that has `id` as that operand; a forward entry comes before the backward. Null if there
// is none.
const Family* productWith(const TaskProgram& program, BufferId id, OperandName as = &Operands::b) {
  for (const Family& family : program.families)
    if (findInfo(family.op).multiplies() && findBuffer(family, as) == id) return &family;
  return nullptr;
}

bool canMake(const TaskProgram& program, BufferId id) {
  const Buffer& buffer = program.at(id);
  if (buffer.type == DType::kI32)
    return std::any_of(program.entries.begin(), program.entries.end(),
                       [&](const Entry& entry) { return entry.expertIds == id || entry.placement == id; });
  const bool scales = productWith(program, id, &Operands::scaleB) != nullptr;
  if (isCodes(buffer.type) || buffer.type == DType::kF8_E4M3)
    return scales || productWith(program, id) || productWith(program, id, &Operands::zeroB);
  if (buffer.type == DType::kF8_E8M0 || buffer.type == DType::kF16) return scales;
  if (buffer.type != DType::kBF16 && buffer.type != DType::kF32) return false;
  const Extent extent = buffer.shape[0].extent;
  return extent != Extent::kPairs && (extent != Extent::kRows || !hasExpertIds(program));
}

// The length of the sums that the product adds, over all ranks of a group.
double fanIn(const TaskProgram& program, const Family& product) {
  const Sharding weight = program.at(findBuffer(product, &Operands::b)).sharding;
  const bool isCut =
      weight != Sharding::kWhole && isTransposed(product.op, product.tiling) != (weight == Sharding::kRows);
  return static_cast<double>(product.tiling.k) * (isCut ? program.mesh.tp : 1);
}

// Whether ranks that have the same tokens have equal numbers of them.
Status checkGroups(const Mesh& mesh, const std::vector<int64_t>& counts) {
  if (mesh.tokens == TokenHolders::kOwn) return {};
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (const size_t first = rank - rank % static_cast<size_t>(mesh.tp); counts[rank] != counts[first])
      return Error{
          fmt::format("found {} tokens for rank {}, expected {} as for rank {}, since ranks of a group have "
                      "the same tokens",
                      counts[rank], rank, counts[first], first)};
  return {};
}

// The largest magnitude of each expert's weight.
void fillAmax(const Tensor& weight, Tensor& tensor) {
  const int64_t count = tensor.elements(), each = count == 0 ? 0 : weight.elements() / count;
  const auto* const from = weight.as<BFloat16>();
  for (int64_t i = 0; i < count; ++i) {
    float& amax = tensor.as<float>()[i] = 0;
    for (int64_t j = 0; j < each; ++j) amax = std::max(amax, std::abs(toFloat(from[i * each + j])));
  }
}

// Whether it is the amax by which the rows of a product are rounded.
bool isAmaxOfRows(const TaskProgram& program, BufferId id) {
  return std::any_of(program.families.begin(), program.families.end(), [&](const Family& family) {
    const OpInfo& op = findInfo(family.op);
    for (size_t i = 0; i < family.reads.size(); ++i)
      if (const OperandName rounded = op.reads[i].findAmax;
          rounded != nullptr && family.reads[i] == id && !op.find(rounded)->isWeight)
        return true;
    return false;
  });
}

void fillInput(const TaskProgram& program, BufferId id, const InputsSpec& spec, int rank, Tensor& tensor) {
  const Buffer& buffer = program.at(id);
  const Mesh& mesh = program.mesh;
  const bool ofTokens = !buffer.shape.empty() && buffer.shape[0].extent == Extent::kTokens;
  const int owner = ofTokens ? mesh.sourceOf(rank) : mesh.groupOf(rank);
  if (buffer.type == DType::kI32 && !ofTokens) return fillPlacement(program, spec, tensor);
  if (buffer.type == DType::kI32)
    return fillIds(program, spec, tensor, randomStream(spec, buffer.name, owner));
  const std::vector<Dim> ofPairs = {{Extent::kTokens, 0}, {Extent::kFixed, program.topK}};
  if (buffer.type == DType::kF32 && buffer.shape == ofPairs)
    return fillWeights(program, tensor, randomStream(spec, buffer.name, owner));
  if (isAmaxOfRows(program, id)) {
    constexpr float kOfRows = 8;  // few normal numbers are larger
    std::fill_n(tensor.as<float>(), tensor.elements(), kOfRows);
    return;
  }
  constexpr double kSizeOfHalves = 2.9;  // the standard deviation of codes of 4 bits that are floats
  constexpr float kSizeOfE4m3 = 64;      // scales of E4M3, whose factor is that much smaller
  const Family *scaled = productWith(program, id, &Operands::scaleB),
               *shifted = productWith(program, id, &Operands::zeroB),
               *multiplied = productWith(program, id, &Operands::factorB);
  if (scaled && buffer.type == DType::kF8_E4M3)
    return fillScales(tensor, kSizeOfE4m3, randomStream(spec, buffer.name, owner));
  const Family* product = scaled       ? scaled
                          : shifted    ? shifted
                          : multiplied ? multiplied
                                       : productWith(program, id);
  const bool dense = product && program.at(product->space).kind == SpaceKind::kTokens;
  double scale = product ? 1 / std::sqrt(fanIn(program, *product)) : 1.0;
  if (multiplied) {
    std::fill_n(tensor.as<float>(), tensor.elements(),
                static_cast<float>(scale / kSizeOfHalves / kSizeOfE4m3));
    return;
  }
  if (scaled || shifted) {
    // codes of 8 bits stand for numbers whose standard deviation is a quarter of the largest; codes of 4 bits
    // are equally likely, with a standard deviation of 4.6 around 7.5; the standard deviation of codes
    // of 8-bit floats is 100
    const DType codes = program.at(findBuffer(*product, &Operands::b)).type;
    const double ofHalves = buffer.type == DType::kF8_E8M0 ? kSizeOfHalves : 4.6;
    scale *= codes == DType::kU8 ? 1 / ofHalves : codes == DType::kF8_E4M3 ? 1.0 / 100 : 4.0 / 127;
    constexpr double kMiddle = 7.5;  // of codes of 4 bits
    return fillScales(tensor,
                      scaled                      ? scale
                      : buffer.type == DType::kI8 ? kMiddle
                                                  : -kMiddle * scale,
                      randomStream(spec, buffer.name, dense ? 0 : owner));
  }
  if (isCodes(buffer.type)) scale = 127.0 / 4;
  fillNormal(tensor, scale, randomStream(spec, buffer.name, dense ? 0 : owner), buffer.sharding, mesh.tp,
             mesh.shardOf(rank));
}

Tensor makeInput(const TaskProgram& program, BufferId id, const InputsSpec& spec, int rank, int64_t tokens,
                 int64_t rows) {
  const Buffer& buffer = program.at(id);
  std::vector<int64_t> shape;
  for (const Dim& dim : buffer.shape) shape.push_back(program.sizeAt(rank, dim, tokens, rows));
  Tensor tensor(buffer.type, std::move(shape));
  fillInput(program, id, spec, rank, tensor);
  return tensor;
}

}  // namespace

Expected<RoutingSpec> parseRouting(std::string_view text) {
  if (text == "uniform") return RoutingSpec{RoutingKind::kUniform, 0};
  if (text == "onehot") return RoutingSpec{RoutingKind::kOneHot, 0};
  if (text == "half-empty") return RoutingSpec{RoutingKind::kHalfEmpty, 0};
  if (text == "masked") return RoutingSpec{RoutingKind::kMasked, 0};
  if (text.starts_with("zipf:")) {
    const std::optional<double> exponent = parseNumber<double>(text.substr(5));
    if (exponent && *exponent >= 0 && *exponent <= 100) return RoutingSpec{RoutingKind::kZipf, *exponent};
  }
  if (text.starts_with("hot-rank:")) {
    const std::optional<double> factor = parseNumber<double>(text.substr(9));
    if (factor && *factor >= 0 && *factor <= static_cast<double>(kMaxRanks))
      return RoutingSpec{RoutingKind::kHotRank, 0, *factor};
  }
  return Error{fmt::format(
      "found routing '{}', expected uniform, zipf:S with S from 0 to 100, onehot, half-empty, masked or "
      "hot-rank:X with X from 0 to {}",
      oneLine(text), kMaxRanks)};
}

Status checkRouting(const TaskProgram& program, const RoutingSpec& routing) {
  if (routing.kind != RoutingKind::kHotRank || !hasExpertIds(program)) return {};
  const double pairs = hotPairs(program, routing.factor), all = program.topK;
  const double first = firstExperts(program), others = program.experts - program.spare - first;
  const double least = std::max(0.0, all - others), most = std::min(all, first);
  if (pairs >= least && pairs <= most) return {};
  const double each = all / program.mesh.ep;
  return Error{
      fmt::format("found routing hot-rank:{:g}, expected {:g} to {:g} times the mean rows, for {} "
                  "experts of {} at the rank and top_k {}",
                  routing.factor, least / each, most / each, first, first + others, program.topK)};
}

Expected<TokensSpec> parseTokens(std::string_view text) {
  const auto bad = Error{fmt::format(
      "found tokens '{}', expected N, ragged:N or one number per rank as in 0,17,5", oneLine(text))};
  TokensSpec spec;
  std::string_view rest = text;
  if (rest.starts_with("ragged:")) {
    spec.ragged = true;
    rest.remove_prefix(7);
  }
  const bool list = rest.find(',') != rest.npos;
  if (list && spec.ragged) return bad;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const std::optional<int64_t> count = parseNumber<int64_t>(rest.substr(0, comma));
    if (!count || *count < 0) return bad;
    if (list) spec.counts.push_back(*count);
    spec.most = std::max(spec.most, *count);
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return spec;
}

Expected<std::vector<int64_t>> tokensOfRanks(const TaskProgram& program, const InputsSpec& spec) {
  if (Status fits = checkRouting(program, spec.routing); !fits) return fits.error();
  const TokensSpec& tokens = spec.tokens;
  const auto ranks = static_cast<size_t>(program.mesh.peers());
  if (tokens.most > program.maxTokens)
    return Error{fmt::format("found {} tokens, expected at most {}, the program's max_tokens", tokens.most,
                             program.maxTokens)};
  if (!tokens.counts.empty() && tokens.counts.size() != ranks)
    return Error{fmt::format("found {} numbers of tokens, expected one for each of {} ranks",
                             tokens.counts.size(), ranks)};
  if (Status same = checkGroups(program.mesh, tokens.counts); !same) return same.error();
  if (!tokens.counts.empty()) return tokens.counts;
  std::vector<int64_t> counts(ranks, tokens.most);
  if (!tokens.ragged) return counts;
  for (size_t r = 0; r < ranks; ++r) {
    const int64_t least = tokens.most / 4;
    Random random = randomStream(spec, Stream::kTokens, program.mesh.sourceOf(static_cast<int32_t>(r)));
    counts[r] = least + random.below(tokens.most - least + 1);
  }
  return counts;
}

bool hasExpertIds(const TaskProgram& program) {
  return std::any_of(program.entries.begin(), program.entries.end(),
                     [](const Entry& entry) { return !entry.expertIds.none(); });
}

int64_t rowsWithoutIds(const TaskProgram& program, int rank, const std::vector<int64_t>& tokens) {
  int64_t rows = 0;
  for (int source = 0; source < program.mesh.peers(); ++source)
    if (program.mesh.sends(source, rank))
      rows += tokens[static_cast<size_t>(source)] * program.countExperts(rank);
  return rows;
}

Expected<int64_t> tokensOfRows(const TaskProgram& program, int rank, int64_t rows) {
  const Mesh& mesh = program.mesh;
  const int64_t experts = program.countExperts(rank), sources = mesh.sources();
  if (experts == 0 ? rows != 0 : rows % experts != 0)
    return Error{
        fmt::format("found {} rows, expected a multiple of {}, the experts of the rank", rows, experts)};
  const int64_t tokens = experts == 0 ? 0 : rows / experts, most = sources * program.maxTokens;
  if (tokens > most)
    return Error{fmt::format("found {} rows, expected at most {}, from max_tokens of {} ranks", rows,
                             most * experts, sources)};
  return tokens / sources + (mesh.sourceOf(rank) < tokens % sources ? 1 : 0);
}

TensorMap makeRoutingInputs(const TaskProgram& program, const InputsSpec& spec, int rank, int64_t tokens) {
  TensorMap map;
  for (const Entry& entry : program.entries)
    for (const BufferId id : {entry.expertIds, entry.placement})
      if (id && !map.contains(program.at(id).name))
        map.emplace(program.at(id).name, makeInput(program, id, spec, rank, tokens, 0));
  return map;
}

Expected<TensorMap> makeProgramInputs(const TaskProgram& program, const InputsSpec& spec, int rank,
                                      int64_t tokens, int64_t rows) {
  TensorMap map;
  for (uint32_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.role != Role::kInput && !isAccumulated(program, {i})) continue;
    if (!canMake(program, {i}))
      return Error{fmt::format("cannot make tensor '{}': it is the result of another run, or no op reads it",
                               buffer.name)};
    map.emplace(buffer.name, makeInput(program, {i}, spec, rank, tokens, rows));
  }
  for (uint32_t i = 0; i < program.buffers.size(); ++i)
    if (const Family* rounded = productWith(program, {i}, &Operands::amaxB)) {
      const auto weight = map.find(program.at(findBuffer(*rounded, &Operands::b)).name),
                 amax = map.find(program.buffers[i].name);
      // either may be made in the step
      if (weight != map.end() && amax != map.end()) fillAmax(weight->second, amax->second);
    }
  return map;
}

}  // namespace sluice::tools
