#include "tools/bench/bench_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "runtime/base/machine.h"
#include "runtime/base/threads.h"
#include "tools/bench/peer.h"
#include "tools/bench/program_tensors.h"
#include "tools/moe/inputs.h"
#include "tools/moe/random.h"

namespace sluice::tools {

namespace {

// Whether the tensor fits; its first dimension may be one that the program does not fix.
bool fits(const TaskProgram& program, const Buffer& buffer, int rank, const Tensor& tensor) {
  return shapeOf(program, buffer, rank, tensor.shape().front(), tensor.shape().front()) == tensor.shape();
}

// Codes of 8 bits are -127 to 127 and codes of 4 bits -8 to 7, each equally likely: these are the standard
// deviations.
constexpr int64_t kCodes = 255;
constexpr double kSizeOfCodes = 73.6, kSizeOfHalves = 4.6;
// Scales of E4M3 are of this size, and their factor is a small power of two.
constexpr float kSizeOfE4m3 = 64, kFactor = 0x1p-12F;

// Fills a tensor with numbers of about the size `scale`; codes are of any size. If the numbers are scales,
// `scale` is the size of codes times scales: a layer with numbers unlike real ones may run slowly (exp of
// large ones has subnormal results). `sizeOfCodes`: the size of the codes that the numbers scale or,
// negative, of the codes whose zeros they are; 0 if they are neither.
void fillRandom(Tensor& tensor, double scale, uint64_t stream, double sizeOfCodes) {
  Random random(1, stream);
  const auto factor = static_cast<float>(scale);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    float value;
    if (tensor.type() == DType::kU8)
      value = static_cast<float>(random.below(256));
    else if (isCodes(tensor.type()))
      value = static_cast<float>(random.below(kCodes) - kCodes / 2);
    else if (sizeOfCodes != 0 && tensor.type() == DType::kF8_E4M3)
      value = (0.5F + static_cast<float>(random.uniform())) * kSizeOfE4m3;
    else if (sizeOfCodes != 0)
      value = static_cast<float>((0.5 + random.uniform()) * scale / sizeOfCodes);
    else
      value = random.normal() * factor;
    setElement(tensor.type(), tensor.data(), i, value);
  }
}

// The bytes of all ranks, including those that the runtime holds.
double countBytes(const Program& program, int64_t tokens, int64_t rows) {
  double bytes = 0;
  for (const Buffer& buffer : program.tables().buffers) {
    double size = static_cast<double>(dtypeBytes(buffer.type));
    for (int64_t dim : shapeOf(program.tables(), buffer, 0, tokens, rows)) size *= static_cast<double>(dim);
    bytes += size * program.ranks();
  }
  return bytes;
}

// Returns the average size of the codes of the program's weights, by which scales are divided; zeros are -7.5
// scales.
double sizeOf(const TaskProgram& program, bool isZero) {
  const bool halves = std::any_of(program.buffers.begin(), program.buffers.end(),
                                  [](const Buffer& buffer) { return buffer.type == DType::kU8; });
  return (halves ? kSizeOfHalves : kSizeOfCodes) / (isZero ? -7.5 : 1);
}

// The tensors of rank `rank`, which receives `rows` rows.
TensorMap makeRows(const TaskProgram& program, int rank, int64_t tokens, int64_t rows,
                   const TensorMap* shared) {
  TensorMap tensors;
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    const bool ofRows = buffer.shape.front().extent == Extent::kRows;
    if (!isCallers(buffer) || (shared != nullptr && !ofRows)) continue;
    Tensor tensor(buffer.type, shapeOf(program, buffer, rank, tokens, rows));
    const bool isZero = buffer.name.ends_with("_zero");
    const double sizeOfCodes = isZero || buffer.name.ends_with("_scale") ? sizeOf(program, isZero) : 0;
    const size_t last = tensor.shape().size() - 1;
    const double fanIn =
        ofRows ? 1.0
               : static_cast<double>(tensor.shape()[sizeOfCodes != 0 ? last : std::min<size_t>(1, last)]);
    if (buffer.name.ends_with("_weight_factor"))
      std::fill_n(tensor.as<float>(), tensor.elements(), kFactor);
    else if (buffer.role == Role::kInput && buffer.type != DType::kI32)
      fillRandom(tensor, 1 / std::sqrt(fanIn), b << 16 | static_cast<uint32_t>(rank), sizeOfCodes);
    tensors.emplace(buffer.name, std::move(tensor));
  }
  return tensors;
}

// Calls `work` for each rank, in parallel if there are several; returns the error of the lowest rank that
// failed.
Status onRanks(int ranks, const std::function<Status(int)>& work) {
  if (ranks == 1) return work(0);
  std::vector<Status> results(static_cast<size_t>(ranks));
  if (Status started =
          runTogether(ranks, "the ranks", [&](int rank) { results[static_cast<size_t>(rank)] = work(rank); });
      !started)
    return started;
  for (Status& result : results)
    if (!result) return result;
  return {};
}

Status bindTensors(const TaskProgram& program, int rank, Weights weights, TensorMap& own, TensorMap* shared,
                   Context& context) {
  for (const Buffer& buffer : program.buffers) {
    if (!isCallers(buffer)) continue;
    auto found = own.find(buffer.name);
    if (shared != nullptr && (found == own.end() || !fits(program, buffer, rank, found->second)))
      found = shared->find(buffer.name);
    Tensor& tensor = found->second;
    const TensorView view{tensor.type(), tensor.shape(), tensor.data()};
    const std::string& name = buffer.name;
    const bool isWeight = std::ranges::any_of(
        std::to_array<std::string_view>({"_weight", "_weight_scale", "_weight_zero", "_weight_factor"}),
        [&](std::string_view end) { return name.ends_with(end); });
    if (Status status = context.bind(buffer.name, view, isWeight ? weights : Weights::kOrdinary); !status)
      return status;
  }
  return {};
}

constexpr int kCoresOfTarget = 0;

}  // namespace

// A machine that runs out of memory kills arbitrary processes.
Status checkBytes(double bytes) {
  const MemoryLeft left = memoryLeft();
  if (bytes <= 0.8 * static_cast<double>(left.bytes)) return {};
  return Error{fmt::format("needs about {:.1f} GiB of memory, found {:.1f} GiB that {} has left",
                           bytes / (1 << 30), static_cast<double>(left.bytes) / (1 << 30), left.of)};
}

double bytesOfLayer(const Program& program, const LayerCase& c) {
  const int64_t rows = c.isLinear() ? c.allTokens() : c.tokens * c.topK;
  return 2 * countBytes(program, c.tokens, rows);
}

std::string_view weightsName(Weights weights) {
  return weights == Weights::kConstant ? "constant" : "ordinary";
}

Expected<BenchTensors> makeRowsTensors(const Program& program, const RowsCase& c,
                                       const BenchOptions& options) {
  const int64_t rows = c.allRows();
  // a peer holds as much, and its weights packed for both passes, in fp32 twice that and copies of the
  // inputs; Sluice packs its weights if they are constant
  double parts = 2;
  for (const std::string& name : options.peers) parts += peerKind(name).type == DType::kF32 ? 6 : 2;
  if (Status status = checkBytes(parts * countBytes(program, rows, rows)); !status) return status.error();
  BenchTensors tensors;
  tensors.push_back(makeRows(program.tables(), 0, rows, rows, nullptr));
  auto* ids = tensors[0].at("expert_ids").as<int32_t>();
  for (size_t expert = 0; expert < c.rows.size(); ++expert)
    for (int64_t row = 0; row < c.rows[expert]; ++row) *ids++ = static_cast<int32_t>(expert);
  return tensors;
}

Expected<BenchTensors> makeLayerTensors(const Program& program, const LayerCase& c) {
  if (Status status = checkBytes(bytesOfLayer(program, c)); !status) return status.error();
  const Expected<RoutingSpec> routing = parseRouting(c.skew);
  if (!routing) return routing.error();
  const InputsSpec spec{.tokens = {}, .routing = *routing, .seed = 1};
  BenchTensors tensors;
  for (int rank = 0; rank < c.ranks; ++rank) {
    Expected<TensorMap> own = makeProgramInputs(program.tables(), spec, rank, c.tokens);
    if (!own) return own.error();
    for (const Buffer& buffer : program.tables().buffers)
      if (isCallers(buffer) && buffer.role == Role::kOutput)
        own->emplace(buffer.name, Tensor(buffer.type, shapeOf(program.tables(), buffer, rank, c.tokens, 0)));
    tensors.push_back(std::move(*own));
  }
  return tensors;
}

std::vector<int64_t> rowsOfExperts(const BenchTensors& tensors, int64_t experts) {
  std::vector<int64_t> rows(static_cast<size_t>(experts));
  for (const TensorMap& rank : tensors) {
    const Tensor& ids = rank.at("expert_ids");
    for (int64_t i = 0; i < ids.elements(); ++i)
      if (ids.as<int32_t>()[i] >= 0) ++rows[static_cast<size_t>(ids.as<int32_t>()[i])];
  }
  return rows;
}

BenchTensors makeRowsOfLayer(const Program& program, const BenchTensors& layer) {
  const TaskProgram& tables = program.tables();
  const std::vector<int64_t> rows = rowsOfExperts(layer, tables.experts);
  BenchTensors tensors;
  for (int rank = 0; rank < tables.mesh.peers(); ++rank) {
    const auto first = rows.begin() + tables.findFirstExpert(rank);
    const int64_t mine = std::accumulate(first, first + tables.countExperts(rank), int64_t{0});
    tensors.push_back(makeRows(tables, rank, 0, mine, &layer[static_cast<size_t>(rank)]));
  }
  return tensors;
}

Expected<std::unique_ptr<BenchLayer>> BenchLayer::create(Program program, int threads, Weights weights,
                                                         BenchTensors& own, BenchTensors* shared) {
  std::unique_ptr<BenchLayer> layer(new BenchLayer(std::move(program)));
  const int ranks = layer->program_.ranks();
  layer->contexts_.resize(static_cast<size_t>(ranks));
  const Status made = onRanks(ranks, [&](int rank) -> Status {
    const auto r = static_cast<size_t>(rank);
    Transport& transport = layer->local_.transport(rank);
    const auto failed = [&](const Error& error) {
      transport.abort(error.message);  // the others must not wait for a rank that has failed
      return error;
    };
    ContextOptions options;
    options.threads = threads;
    options.timeoutSeconds = 600;
    auto context = Context::create(layer->program_, transport, options);
    if (!context) return failed(context.error());
    layer->contexts_[r] = std::move(*context);
    const Status bound = bindTensors(layer->program_.tables(), rank, weights, own[r],
                                     shared == nullptr ? nullptr : &(*shared)[r], *layer->contexts_[r]);
    return bound ? bound : failed(bound.error());
  });
  if (!made) return made.error();
  return layer;
}

BenchLayer::~BenchLayer() {
  // Ranks can only leave together.
  const auto leave = [&](int rank) -> Status {
    contexts_[static_cast<size_t>(rank)].reset();
    return {};
  };
  if (!contexts_.empty()) static_cast<void>(onRanks(static_cast<int>(contexts_.size()), leave));
}

Expected<Duration> BenchLayer::run(Pass pass) {
  const Timer timer;
  const Status done = onRanks(program_.ranks(), [&](int rank) {
    Status status = contexts_[static_cast<size_t>(rank)]->run(passName(pass));
    if (!status) local_.transport(rank).abort(status.error().message);
    return status;
  });
  const Duration duration = timer.elapsed();
  if (!done) return done.error();
  return duration;
}

Expected<GpuPrograms> compileForGpu(const GpuCase& c, const BenchOptions& options) {
  Expected<Program> products = c.layer ? compileLayerRows(*c.layer, kCoresOfTarget, options)
                                       : compileRows(c.rows, kCoresOfTarget, options);
  if (!products) return products.error();
  GpuPrograms programs{std::move(*products), {}};
  if (!c.layer) return programs;
  Expected<Program> whole = compileLayer(*c.layer, kCoresOfTarget, options);
  if (!whole) return whole.error();
  programs.whole = std::move(*whole);
  return programs;
}

}  // namespace sluice::tools
