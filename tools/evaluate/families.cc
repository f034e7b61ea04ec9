#include "tools/evaluate/families.h"

#include <algorithm>
#include <cmath>

#include "ops/reference/reference.h"
#include "runtime/abi/activation.h"
#include "runtime/abi/kernels.h"
#include "runtime/base/encoding.h"
#include "runtime/base/rounding.h"
#include "runtime/program/op_table.h"
#include "runtime/program/space_table.h"
#include "tools/moe/matmul.h"

namespace sluice::tools {
namespace {

// Rows begin .. end - 1 have the weight `weight`: an expert's, or the only one.
struct Group {
  int64_t begin, end, weight;
};

double readFactor(const Family& family) { return effectiveAlpha(family.tiling); }

// One family at one rank.
class FamilyAtRank {
 public:
  FamilyAtRank(const FamilyContext& context, const Family& family, size_t rank)
      : c_(context), f_(family), ids_(findOperands(family)), rank_(rank), rows_(context.routing[rank]) {}

  void run() {
    switch (f_.op) {
      case OpKind::kDispatch:
        return dispatch();
      case OpKind::kGmm:
        return put(ids_.c, product());
      case OpKind::kGmmWeightGrad:
        return weightGrad();
      case OpKind::kActivation:
        return put(ids_.act, activation(*read(ids_.gateUp)));
      case OpKind::kActivationGrad:
        return activationGrad(*read(ids_.actGrad));
      case OpKind::kCombineReturn:
        return combineReturn();
      case OpKind::kCombineSum:
        return combineSum();
      case OpKind::kAdd:
        return put(ids_.c, add());
      case OpKind::kScale:
        return put(ids_.c, scale());
      case OpKind::kGmmActivation: {
        const Values gateUp = product();
        put(ids_.act, activation(gateUp));
        return put(ids_.gateUp, gateUp);
      }
      case OpKind::kGmmActivationGrad:
        return activationGrad(product());
      case OpKind::kColumnSum:
        return columnSum();
      case OpKind::kRowDot:
        return put(ids_.c, rowDot());
      case OpKind::kQuantize:
        return quantize();
      case OpKind::kAmax:
        return put(ids_.amax, amax());
      case OpKind::kEncode:
        return encode();
    }
  }

 private:
  RankState& state() { return c_.ranks[rank_]; }
  const Values* bufferAt(size_t rank, BufferId id) const {
    return id ? &c_.ranks[rank].buffers[id.value] : nullptr;
  }
  const Values* read(BufferId id) const { return bufferAt(rank_, id); }

  // Stores a result if the family has it.
  void put(BufferId id, Values values) {
    if (!id) return;
    store(c_.program.at(id).type, values.data);
    state().buffers[id.value] = std::move(values);
  }

  // Rounds numbers as a kernel does that stores them, or passes them to a matrix unit, as `type`.
  void store(DType type, std::vector<double>& data) const {
    if (c_.roundStored) roundTo(type, data);
    if (c_.noise != nullptr) addNoise(type, data, *c_.noise);
  }

  static Values zeros(std::vector<int64_t> shape) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    return {std::move(shape), std::vector<double>(static_cast<size_t>(count))};
  }

  std::vector<Group> groups() const {
    if (findInfo(c_.program.at(f_.space).kind).dense) return {{0, c_.ranks[rank_].tokens, 0}};
    std::vector<Group> groups;
    for (size_t e = 0; e + 1 < rows_.expertBegin.size(); ++e)
      groups.push_back({rows_.expertBegin[e], rows_.expertBegin[e + 1], static_cast<int64_t>(e)});
    return groups;
  }

  void dispatch() {
    if (ids_.tokens) put(ids_.rows, dispatched(ids_.tokens));
    if (ids_.tokenScales) put(ids_.rowScales, dispatched(ids_.tokenScales));
    Values weights = zeros({std::ssize(rows_.rows)});
    for (size_t row = 0; row < rows_.rows.size(); ++row) {
      const auto [source, pair] = rows_.rows[row];
      if (const Values* given = bufferAt(static_cast<size_t>(source), ids_.weights))
        weights.data[row] = given->data[static_cast<size_t>(pair)];
    }
    put(ids_.rowWeights, std::move(weights));
  }

  // What a buffer has for tokens, by rows.
  Values dispatched(BufferId ofTokens) const {
    const int64_t topK = c_.program.topK, length = read(ofTokens)->rowLength();
    Values rows = zeros({std::ssize(rows_.rows), length});
    for (size_t row = 0; row < rows_.rows.size(); ++row) {
      const auto [source, pair] = rows_.rows[row];
      const Values& tokens = *bufferAt(static_cast<size_t>(source), ofTokens);
      std::copy_n(tokens.data.data() + pair / topK * length, length,
                  rows.data.data() + static_cast<int64_t>(row) * length);
    }
    return rows;
  }

  // Reads row by row, also where the rows are gathered from tokens.
  Values rowsRead(OperandName factor) const {
    const BufferId id = ids_.*factor;
    return isGathered(c_.program, f_, factor) ? dispatched(id) : *read(id);
  }

  // The rows that a product multiplies; codes count times their scale.
  Values rowFactor() const {
    Values values = rowsRead(&Operands::a);
    if (!ids_.scaleA) return values;
    const std::vector<double>& scales = read(ids_.scaleA)->data;
    const int64_t columns = hasRowBlocks(c_.program, f_) ? kMxBlock : values.rowLength();
    for (int64_t i = 0; i < std::ssize(values.data); ++i)
      values.data[static_cast<size_t>(i)] *= scales[static_cast<size_t>(i / columns)];
    return values;
  }

  // The matrix of an expert; codes count times the scale of their block, if they have one, plus its zero, or
  // from its zero.
  std::vector<double> loadWeight(int64_t expert) const {
    const Values& weight = *read(ids_.b);
    const int64_t height = weight.shape.end()[-2], stored = height * weight.shape.back();
    std::vector<double> values = weight.slice(expert * stored, stored);
    const Buffer& codes = c_.program.at(ids_.b);
    if (codesPerElement(codes.type) == 2) values = expanded(values);
    if (!ids_.scaleB) return values;
    const Block block = *findBlock(codes, c_.program.at(ids_.scaleB));
    const int64_t width = std::ssize(values) / height, across = scalesFor(width, block.columns);
    const int64_t first = expert * scalesFor(height, block.rows) * across;
    const double* const scales = read(ids_.scaleB)->data.data() + first;
    const bool isCounted = ids_.zeroB && c_.program.at(ids_.zeroB).type == DType::kI8;
    const double* const zeroes = ids_.zeroB ? read(ids_.zeroB)->data.data() + first : nullptr;
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const int64_t at = i / width / block.rows * across + i % width / block.columns;
      double& value = values[static_cast<size_t>(i)];
      if (zeroes && isCounted) value -= zeroes[at];
      value *= scales[at];
      if (zeroes && !isCounted) value += zeroes[at];
    }
    // a weight that bf16 rows are multiplied by becomes bf16
    if (!ids_.scaleA) store(DType::kBF16, values);
    if (ids_.factorB)
      for (double& value : values) value *= read(ids_.factorB)->data[static_cast<size_t>(expert)];
    return values;
  }

  // What the codes stand for in elements that have two of 4 bits: they are floats beside scales that are
  // codes, and else whole numbers, which count from 8 without zeros.
  std::vector<double> expanded(const std::vector<double>& elements) const {
    const bool areFloats = ids_.scaleB && !isNumber(c_.program.at(ids_.scaleB).type);
    const double minus = ids_.zeroB ? 0 : 8;
    const auto numberOf = [&](int code) { return areFloats ? kTwiceE2m1[code] / 2.0 : code - minus; };
    std::vector<double> values;
    values.reserve(2 * elements.size());
    for (const double element : elements) {
      const int both = static_cast<int>(element);
      values.push_back(numberOf(both % 16));
      values.push_back(numberOf(both / 16));
    }
    return values;
  }

  void quantize() {
    const Values& a = *read(ids_.a);
    Values codes = a, scale = zeros({a.shape[0]});
    const int64_t n = a.rowLength();
    if (const Values* const columns = read(ids_.columnScale)) {
      for (const Group& group : groups())
        for (int64_t at = group.begin * n; at < group.end * n; ++at)
          codes.data[static_cast<size_t>(at)] *=
              columns->data[static_cast<size_t>(group.weight * n + at % n)];
    }
    for (int64_t row = 0; row < a.shape[0]; ++row) {
      double* const line = codes.data.data() + row * n;
      double amax = 0;
      for (int64_t j = 0; j < n; ++j) amax = std::max(amax, std::abs(line[j]));
      const bool isTiny = amax < ops::kLeastQuantised;
      const double step = isTiny ? 1 : amax / 127;
      for (int64_t j = 0; j < n; ++j)
        line[j] = c_.exactFactors ? line[j] / step : isTiny ? 0 : std::nearbyint(line[j] / step);
      scale.data[static_cast<size_t>(row)] = step;
    }
    put(ids_.codes, std::move(codes));
    put(ids_.codeScales, std::move(scale));
  }

  // The numbers that codes stand for; so scales of blocks are 1.
  void encode() {
    Values codes = *read(ids_.a);
    const int64_t n = codes.rowLength();
    const bool isAlong = ids_.codeScales && !ids_.endScales;
    for (const Group& group : groups()) {
      double* const data = codes.data.data() + group.begin * n;
      const int64_t rows = group.end - group.begin;
      roundFactor(isAlong ? ops::FactorView{data, n, 1, rows, n} : ops::FactorView{data, rows, n, n, 1},
                  f_.tiling.roundA, amaxAt(ids_.amaxA, group.weight));
    }
    Values ones = zeros({codes.shape[0], n / kMxBlock});
    std::ranges::fill(ones.data, 1.0);
    put(ids_.codes, std::move(codes));
    put(ids_.codeScales, std::move(ones));
  }

  // Rounds a factor before it is multiplied.
  void roundFactor(const ops::FactorView& factor, Rounding rounding, double amax = 0) const {
    if (!c_.exactFactors) ops::roundReference(factor, rounding, amax);
  }

  // The amax of expert `expert`; 0 where the factor is not rounded by one.
  double amaxAt(BufferId id, int64_t expert) const {
    const Values* const amax = read(id);
    return amax == nullptr ? 0 : amax->data[static_cast<size_t>(expert)];
  }

  Values amax() const {
    const Values& a = *read(ids_.a);
    const int64_t n = a.rowLength();
    Values found = readZeros(ids_.amax);
    for (const Group& group : groups())
      for (int64_t at = group.begin * n; at < group.end * n; ++at)
        if (const double x = std::abs(a.data[static_cast<size_t>(at)]); std::isfinite(x) && x >= 0x1p-126)
          found.data[static_cast<size_t>(group.weight)] =
              std::max(found.data[static_cast<size_t>(group.weight)], x);
    return found;
  }

  Values product() const {
    const bool transposed = isTransposed(f_.op, f_.tiling);
    Values a = rowFactor();
    const Values& weight = *read(ids_.b);
    const int64_t k = a.rowLength();
    const int64_t n = transposed ? weight.shape.end()[-2]
                                 : weight.shape.back() * codesPerElement(c_.program.at(ids_.b).type);
    Values c = zeros({a.shape[0], n});
    for (const Group& group : groups()) {
      if (group.begin == group.end) continue;
      if (!hasRowBlocks(c_.program, f_))  // codes have been rounded
        roundFactor({a.data.data() + group.begin * k, k, 1, group.end - group.begin, k}, f_.tiling.roundA,
                    amaxAt(ids_.amaxA, group.weight));
      std::vector<double> b = loadWeight(group.weight);
      roundFactor({b.data(), k, transposed ? 1 : n, n, transposed ? k : 1}, f_.tiling.roundB,
                  amaxAt(ids_.amaxB, group.weight));
      MatrixView matrix{b.data(), transposed ? k : n, 1};
      if (transposed) matrix = matrix.transposed();
      matmul({.a = {a.data.data() + group.begin * k, k, 1},
              .b = matrix,
              .c = c.data.data() + group.begin * n,
              .ldc = n,
              .m = group.end - group.begin,
              .n = n,
              .k = k},
             c_.threads);
    }
    for (double& value : c.data) value *= readFactor(f_);
    addBias(read(ids_.bias), ids_.c ? ids_.c : ids_.act, c);
    // results inside a fused task are rounded as if they were stored
    store(DType::kBF16, c.data);
    return c;
  }

  // Whether what every shard has whole counts in this rank's result: in the terms of a sum, once.
  bool countsIn(BufferId result) const {
    return c_.program.at(result).sharding != Sharding::kPartial ||
           c_.program.mesh.shardOf(static_cast<int32_t>(rank_)) == 0;
  }

  // Adds the bias of its expert to each row of `result`.
  void addBias(const Values* bias, BufferId result, Values& rows) const {
    if (bias == nullptr || !countsIn(result)) return;
    const int64_t n = rows.rowLength();
    for (const Group& group : groups())
      for (int64_t at = group.begin * n; at < group.end * n; ++at)
        rows.data[static_cast<size_t>(at)] += bias->data[static_cast<size_t>(group.weight * n + at % n)];
  }

  void columnSum() {
    const Values& a = *read(ids_.a);
    const Values* scale = read(ids_.rowWeights);
    const int64_t n = a.rowLength();
    Values sums = zeroGradient();
    for (const Group& group : groups())
      for (int64_t at = group.begin * n; at < group.end * n; ++at)
        sums.data[static_cast<size_t>(group.weight * n + at % n)] +=
            a.data[static_cast<size_t>(at)] * (scale ? scale->data[static_cast<size_t>(at / n)] : 1.0);
    putGradient(std::move(sums));
  }

  Values rowDot() const {
    const Values &a = *read(ids_.a), &b = *read(ids_.b);
    const Values* addend = read(ids_.addend);
    const int64_t n = a.rowLength();
    Values dots = zeros({a.shape[0]});
    if (addend) dots = *addend;
    if (c_.program.at(ids_.a).sharding == Sharding::kWhole && !countsIn(ids_.c)) return dots;
    for (const Group& group : groups())
      for (int64_t at = group.begin * n; at < group.end * n; ++at)
        dots.data[static_cast<size_t>(at / n)] +=
            a.data[static_cast<size_t>(at)] * b.data[static_cast<size_t>(group.weight * n + at % n)];
    return dots;
  }

  // Stores a gradient, added to the content of its tensor if the family does that.
  void putGradient(Values grad) {
    const Values& before = *read(ids_.c);
    if (accumulates(f_) && !before.shape.empty())
      for (size_t i = 0; i < grad.data.size(); ++i) grad.data[i] += before.at(static_cast<int64_t>(i));
    put(ids_.c, std::move(grad));
  }

  Values zeroGradient() const { return readZeros(ids_.c); }
  Values readZeros(BufferId buffer) const {
    std::vector<int64_t> shape;
    for (const Dim& dim : c_.program.at(buffer).shape)
      shape.push_back(c_.program.sizeAt(static_cast<int32_t>(rank_), dim, 0));
    return zeros(std::move(shape));
  }

  void weightGrad() {
    std::vector<double> a = rowsRead(&Operands::a).data, b = rowsRead(&Operands::b).data;
    const Values* rowScale = read(ids_.rowWeights);
    const int64_t m = read(ids_.a)->rowLength(), n = read(ids_.b)->rowLength();
    const bool isRounded = roundsFactors(f_.tiling);
    const bool scalesB = isRounded && (f_.tiling.flags & kScalesA) == 0;
    const OperandName scaledFactor = scalesB ? &Operands::b : &Operands::a;
    const auto round = [&](OperandName factor) {  // codes have been rounded
      if (codedFactor(c_.program, f_) == factor) return;
      const int64_t columns = countColumns(f_.tiling, factor);
      double* const data = factor == &Operands::a ? a.data() : b.data();
      for (const Group& group : groups())
        roundFactor({data + group.begin * columns, group.end - group.begin, columns, columns, 1},
                    findRounding(f_.tiling, factor), amaxAt(ids_.*findAmax(factor), group.weight));
    };
    const bool byAmax = findInfo(findRounding(f_.tiling, scaledFactor)).isScaled;
    if (byAmax) round(scaledFactor);
    std::vector<double>& scaled = scalesB ? b : a;
    const auto width = static_cast<size_t>(scalesB ? n : m);
    for (size_t i = 0; rowScale && i < scaled.size(); ++i) scaled[i] *= rowScale->data[i / width];
    // kernels round scaled rows, which changes no bit if the scale is a power of two
    if (rowScale && isRounded && !byAmax) store(DType::kBF16, scaled);
    if (rowScale && (!isRounded || byAmax) && c_.noise != nullptr) addNoise(DType::kBF16, scaled, *c_.noise);
    if (!byAmax) round(scaledFactor);
    round(scalesB ? &Operands::a : &Operands::b);
    Values grad = zeroGradient();
    for (const Group& group : groups()) {
      const int64_t count = group.end - group.begin;
      matmul({.a = MatrixView{a.data() + group.begin * m, m, 1}.transposed(),
              .b = {b.data() + group.begin * n, n, 1},
              .c = grad.data.data() + group.weight * m * n,
              .ldc = n,
              .m = m,
              .n = n,
              .k = count},
             c_.threads);
    }
    for (double& value : grad.data) value *= readFactor(f_);
    putGradient(std::move(grad));
  }

  ops::ActivationPoint point(const Values& gateUp, int64_t row, int64_t i) const {
    const ActivationKind kind = f_.tiling.activation;
    const double* line = gateUp.data.data() + row * gateUp.rowLength();
    return ops::activationAt(kind, toFloat(f_.tiling.limit), line[i],
                             line[ops::findUpColumn(kind, 0, f_.tiling.n) + i]);
  }

  Values activation(const Values& gateUp) const {
    const int64_t inter = f_.tiling.n;
    Values act = zeros({gateUp.shape[0], inter});
    for (int64_t row = 0; row < gateUp.shape[0]; ++row)
      for (int64_t i = 0; i < inter; ++i)
        act.data[static_cast<size_t>(row * inter + i)] = point(gateUp, row, i).act();
    return act;
  }

  void activationGrad(const Values& actGrad) {
    const Values& gateUp = *read(ids_.gateUp);
    const Values* const rowWeights = read(ids_.rowWeights);
    const int64_t inter = actGrad.rowLength(), count = actGrad.shape[0];
    Values grad = zeros(gateUp.shape), weightGrad = zeros({count});
    for (int64_t row = 0; row < count; ++row) {
      const double weight = rowWeights ? rowWeights->data[static_cast<size_t>(row)] : 1.0;
      double* line = grad.data.data() + row * grad.rowLength();
      for (int64_t i = 0; i < inter; ++i) {
        const ops::ActivationPoint at = point(gateUp, row, i);
        const double d = actGrad.data[static_cast<size_t>(row * inter + i)];
        line[i] = weight * d * at.gateSlope();
        if (findInfo(f_.tiling.activation).isGated()) line[inter + i] = weight * d * at.upSlope();
        weightGrad.data[static_cast<size_t>(row)] += d * at.act();
      }
    }
    put(ids_.gateUpGrad, std::move(grad));
    put(ids_.rowWeightGrad, std::move(weightGrad));
    if (ids_.weightedAct) put(ids_.weightedAct, weightedAct(gateUp, rowWeights));
  }

  // Weighted after it was rounded as if it were stored.
  Values weightedAct(const Values& gateUp, const Values* rowWeights) const {
    Values act = activation(gateUp);
    store(DType::kBF16, act.data);
    weightRows(rowWeights, act);
    return act;
  }

  static void weightRows(const Values* weights, Values& rows) {
    const auto width = static_cast<size_t>(rows.rowLength());
    for (size_t i = 0; weights != nullptr && i < rows.data.size(); ++i)
      rows.data[i] *= weights->data[i / width];
  }

  // Visits the rows of all ranks that return to this one, with their places there: every shard of an expert
  // returns a row for each pair; masked pairs have none.
  template <class Body>  // body(size_t owner, size_t row, int64_t pair, int64_t place)
  void forReturnedRows(const Body& body) const {
    const int64_t pairs = c_.ranks[rank_].tokens * c_.program.topK;
    for (size_t owner = 0; owner < c_.ranks.size(); ++owner) {
      const int64_t begin = c_.program.mesh.shardOf(static_cast<int32_t>(owner)) * pairs;
      for (size_t row = 0; row < c_.routing[owner].rows.size(); ++row) {
        const RoutedRow& at = c_.routing[owner].rows[row];
        if (returnsTo(c_.program, at.source, rank_)) body(owner, row, at.pair, begin + at.pair);
      }
    }
  }

  void combineReturn() {
    const int64_t length = read(ids_.rows)->rowLength();
    const int64_t places = c_.program.mesh.tp * state().tokens * c_.program.topK;
    Values returned = zeros({places, length}), scalars = zeros({places});
    forReturnedRows([&](size_t owner, size_t row, int64_t, int64_t place) {
      const double* from = bufferAt(owner, ids_.rows)->data.data() + static_cast<int64_t>(row) * length;
      std::copy_n(from, length, returned.data.data() + place * length);
      if (const Values* given = bufferAt(owner, ids_.rowScalars))
        scalars.data[static_cast<size_t>(place)] = given->data[row];
    });
    put(ids_.returned, std::move(returned));
    put(ids_.returnedScalars, std::move(scalars));
  }

  void combineSum() {
    const Values& returned = *read(ids_.returned);
    const bool isInPlace = c_.program.at(ids_.returned).shape.front().extent == Extent::kRows;
    const Values *weights = read(ids_.weights), *scalars = read(ids_.returnedScalars);
    const int64_t length = returned.rowLength(), topK = c_.program.topK;
    Values sum = zeros({state().tokens, length}), scalarSum = zeros({state().tokens, topK});
    forReturnedRows([&](size_t, size_t row, int64_t pair, int64_t returnedTo) {
      const int64_t place = isInPlace ? static_cast<int64_t>(row) : returnedTo;
      const double weight = weights ? weights->data[static_cast<size_t>(pair)] : 1.0;
      const double* from = returned.data.data() + place * length;
      double* to = sum.data.data() + pair / topK * length;
      for (int64_t i = 0; i < length; ++i) to[i] += weight * from[i];
      if (scalars) scalarSum.data[static_cast<size_t>(pair)] += scalars->data[static_cast<size_t>(place)];
    });
    if (const Values* bias = read(ids_.bias))
      for (size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += bias->data[i % static_cast<size_t>(length)];
    put(ids_.tokens, std::move(sum));
    if (scalars) put(ids_.tokenScalars, std::move(scalarSum));
  }

  Values add() const {
    Values sum = *read(ids_.a);
    for (size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += read(ids_.b)->data[i];
    return sum;
  }

  Values scale() const {
    Values scaled = *read(ids_.a);
    for (double& value : scaled.data) value *= readFactor(f_);
    weightRows(read(ids_.rowWeights), scaled);
    return scaled;
  }

  const FamilyContext& c_;
  const Family& f_;
  const Operands ids_;
  size_t rank_;
  const RankRows& rows_;
};

}  // namespace

void evaluateFamily(const FamilyContext& context, const Family& family, size_t rank) {
  FamilyAtRank(context, family, rank).run();
}

}  // namespace sluice::tools
