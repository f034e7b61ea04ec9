// Prints what packing weights once saves of a step: in processor time of one thread, both ways in turn.
// usage: bench_panels PROGRAM.slp [TOKENS [ROUNDS]]
// (a program of one rank; pairs are dealt to all experts in turn)
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string_view>

#include "runtime/api/context.h"

namespace sluice {
namespace {

double processorSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Tensor {
  std::vector<std::byte> bytes;
  TensorView view;
};

// Normal numbers of a size that keeps sums finite; ids of experts in turn.
Tensor makeTensor(const TaskProgram& program, const Buffer& buffer, int64_t tokens, bool isIds) {
  Tensor tensor;
  tensor.view.type = buffer.type;
  for (const Dim& dim : buffer.shape) tensor.view.shape.push_back(program.sizeAt(0, dim, tokens, tokens));
  const int64_t count = tensor.view.elements();
  tensor.bytes.resize(static_cast<size_t>(tensor.view.bytes()));
  tensor.view.data = tensor.bytes.data();
  std::minstd_rand random(1);
  for (int64_t i = 0; i < count; ++i) {
    const float value = (static_cast<float>(random() % 2048) - 1024) / 65536;
    if (isIds)
      reinterpret_cast<int32_t*>(tensor.view.data)[i] = static_cast<int32_t>(i % program.experts);
    else if (buffer.type == DType::kBF16)
      reinterpret_cast<BFloat16*>(tensor.view.data)[i] = toBFloat16(value);
    else if (buffer.type == DType::kF32)
      reinterpret_cast<float*>(tensor.view.data)[i] = value;
  }
  return tensor;
}

// One way to treat the weights, with what it took.
struct Way {
  const char* name;
  Weights weights;
  std::unique_ptr<LocalRanks> ranks;
  std::unique_ptr<Context> context;
  std::map<std::string, std::vector<double>> seconds;  // by entry
};

Status prepare(Way& way, const Program& program, std::vector<Tensor>& tensors) {
  way.ranks = std::make_unique<LocalRanks>(1);
  auto context = Context::create(program, way.ranks->transport(0), {.executor = ExecutorKind::kSerial});
  if (!context) return context.error();
  way.context = std::move(*context);
  for (size_t b = 0; b < tensors.size(); ++b)
    if (!tensors[b].bytes.empty())
      if (Status bound = way.context->bind(program.tables().buffers[b].name, tensors[b].view, way.weights);
          !bound)
        return bound;
  return {};
}

Status measure(const Program& program, int64_t tokens, int rounds) {
  const TaskProgram& tables = program.tables();
  std::vector<Tensor> tensors(tables.buffers.size());
  for (uint32_t b = 0; b < tables.buffers.size(); ++b) {
    const Buffer& buffer = tables.buffers[b];
    if (buffer.region || (buffer.role != Role::kInput && buffer.role != Role::kOutput)) continue;
    const bool isIds = std::any_of(tables.entries.begin(), tables.entries.end(),
                                   [&](const Entry& entry) { return entry.expertIds == BufferId{b}; });
    tensors[b] = makeTensor(tables, buffer, tokens, isIds);
  }
  std::array<Way, 2> ways{Way{"in each task", Weights::kOrdinary, {}, {}, {}},
                          Way{"once", Weights::kConstant, {}, {}, {}}};
  for (Way& way : ways)
    if (Status ready = prepare(way, program, tensors); !ready) return ready;
  for (int round = -1; round < rounds; ++round)
    for (Way& way : ways)
      for (const Entry& entry : tables.entries) {
        const double begin = processorSeconds();
        if (Status ran = way.context->run(entry.name); !ran) return ran;
        if (round >= 0) way.seconds[entry.name].push_back(processorSeconds() - begin);
      }
  fmt::print("{:<12}{:<14}{:>11}{:>11}{:>8}{:>14}\n", "entry", "packed", "best ms", "median ms", "saves",
             "packed MiB");
  for (const Entry& entry : tables.entries)
    for (Way& way : ways) {
      std::vector<double>& seconds = way.seconds[entry.name];
      std::sort(seconds.begin(), seconds.end());
      const double saves = 1 - seconds.front() / ways[0].seconds[entry.name].front();
      fmt::print("{:<12}{:<14}{:>11.3f}{:>11.3f}{:>7.1f}%{:>14.1f}\n", entry.name, way.name,
                 seconds.front() * 1e3, seconds[seconds.size() / 2] * 1e3, saves * 100,
                 static_cast<double>(way.context->packedWeights().bytes) / (1 << 20));
    }
  return {};
}

// The number that `text` is, or `otherwise` where there is none.
int64_t numberOr(const char* text, int64_t otherwise) {
  const std::string_view digits = text == nullptr ? "" : text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc{} && value > 0 ? value : otherwise;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_panels PROGRAM.slp [TOKENS [ROUNDS]]\n");
    return 2;
  }
  const auto program = Program::load(argv[1]);
  const int64_t tokens = numberOr(argc > 2 ? argv[2] : nullptr, program ? program->tables().maxTokens : 1);
  const int64_t rounds = numberOr(argc > 3 ? argv[3] : nullptr, 5);
  const Status done = program ? measure(*program, tokens, static_cast<int>(rounds)) : program.error();
  if (done) return 0;
  fmt::print(stderr, "bench_panels: error: {}\n", done.error().message);
  return 1;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::run(argc, argv); }
