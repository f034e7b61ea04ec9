#include "tools/cli/run_rank.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "tools/cli/files.h"
#include "tools/cli/run_overlap.h"

namespace sluice::tools {
namespace {

TensorView viewOf(Tensor& tensor) { return {tensor.type(), tensor.shape(), tensor.data()}; }

Status bindAll(const Job& job, Rank& rank, Context& context) {
  for (BufferId id : job.tensors.inputs) {
    const std::string& name = job.program.tables().at(id).name;
    if (Status status = context.bind(name, viewOf(rank.inputs.at(name)), job.weights); !status) return status;
  }
  for (auto& [name, tensor] : rank.outputs)
    if (Status status = context.bind(name, viewOf(tensor)); !status) return status;
  return {};
}

// Outputs of extent rows belong to the context and last until the next run only.
Status keepRowOutputs(const Job& job, EntryId entry, Rank& rank, Context& context) {
  for (BufferId id : tensorsOf(job.program.tables(), {entry}).outputs) {
    const Buffer& buffer = job.program.tables().at(id);
    if (buffer.shape.empty() || buffer.shape[0].extent != Extent::kRows) continue;
    const Expected<TensorView> view = context.output(buffer.name);
    if (!view) return view.error();
    Tensor copy(view->type, view->shape);
    std::memcpy(copy.data(), view->data, static_cast<size_t>(copy.bytes()));
    rank.outputs.insert_or_assign(buffer.name, std::move(copy));
  }
  return {};
}

Status runSteps(const Job& job, Transport& transport, Rank& rank) {
  Expected<std::unique_ptr<Context>> context = Context::create(job.program, transport, job.options);
  if (!context) return context.error();
  if (Status status = bindAll(job, rank, **context); !status) return status;
  rank.figures.stats.resize(job.entries.size());
  for (int repetition = 0; repetition < job.repeat; ++repetition) {
    // Each repetition computes the same.
    copyStarts(job.program.tables(), rank.inputs, rank.outputs);
    if (!job.trace.empty() && repetition + 1 == job.repeat) (*context)->startTrace();
    for (size_t i = 0; i < job.entries.size(); ++i) {
      const EntryId entry = job.entries[i];
      if (Status status = (*context)->run(job.program.tables().at(entry).name); !status) return status;
      rank.figures.stats[i].push_back((*context)->lastRun());
      if (repetition + 1 < job.repeat) continue;
      if (Status status = keepRowOutputs(job, entry, rank, **context); !status) return status;
    }
  }
  rank.figures.packed = (*context)->packedWeights();
  rank.figures.pages = hugePageUse();
  rank.trace = (*context)->takeTrace();
  if (!job.overlap) return {};
  (*context)->stopTrace();
  auto overlap = measureOverlap(job, transport, **context, rank.inputs, rank.figures.tokens);
  if (!overlap) return overlap.error();
  rank.overlap = std::move(*overlap);
  return {};
}

Expected<TensorMap> makeTensors(const Job& job, int rank) {
  const TaskProgram& program = job.program.tables();
  const Expected<std::vector<int64_t>> tokens = tokensOfRanks(program, *job.made);
  if (!tokens) return tokens.error();
  return makeProgramInputs(program, *job.made, rank, (*tokens)[static_cast<size_t>(rank)]);
}

class Writer {
 public:
  template <class T>
  void value(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void list(const T& values) {
    value(static_cast<uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  void value(T& value) {
    if (!enough(sizeof(T))) return;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
  }
  template <class T>
  void list(T& values) {
    constexpr size_t kEach = sizeof(values[0]);
    uint64_t size = 0;
    value(size);
    if (size > bytes_.size() / kEach) good_ = false;
    if (!good_) return;
    values.resize(size);
    if (size > 0) std::memcpy(values.data(), bytes_.data(), size * kEach);
    bytes_.remove_prefix(size * kEach);
  }
  bool isComplete() const { return good_ && bytes_.empty(); }
  bool isGood() const { return good_; }

 private:
  bool enough(size_t bytes) {
    if (bytes_.size() < bytes) good_ = false;
    return good_;
  }
  std::string_view bytes_;
  bool good_ = true;
};

}  // namespace

Expected<Rank> loadRank(const Job& job, int number) {
  const auto index = static_cast<size_t>(number);
  const std::string path = job.made ? fmt::format("inputs of rank {}", number) : job.in[index];
  Expected<TensorMap> tensors = job.made ? makeTensors(job, number) : readSafetensors(path);
  if (!tensors) return tensors.error();
  const TaskProgram& program = job.program.tables();
  const Expected<int64_t> tokens = checkInputs(program, number, job.tensors.inputs, *tensors);
  if (!tokens) return Error{fmt::format("{}: {}", path, tokens.error().message)};
  Rank rank;
  rank.inputs = std::move(*tensors);
  rank.outputs = makeOutputs(program, number, job.tensors.outputs, *tokens);
  rank.figures.tokens = *tokens;
  return rank;
}

Status runRank(const Job& job, Transport& transport, Rank& rank) {
  // the others must hear of it, instead of waiting for a rank that is gone
  try {
    return runSteps(job, transport, rank);
  } catch (const std::exception& error) {
    return Error{fmt::format("rank {}: {}", transport.rank(), error.what())};
  }
}

std::string encodeFigures(const RankFigures& figures) {
  Writer writer;
  writer.value(figures.tokens);
  writer.value(static_cast<uint64_t>(figures.stats.size()));
  for (const auto& stats : figures.stats) writer.list(stats);
  writer.value(figures.packed);
  writer.value(figures.pages.residentBytes);
  writer.value(figures.pages.hugeBytes);
  writer.list(figures.pages.refusal);
  return writer.take();
}

Expected<RankFigures> decodeFigures(std::string_view bytes) {
  RankFigures figures;
  Reader reader(bytes);
  reader.value(figures.tokens);
  uint64_t entries = 0;
  reader.value(entries);
  for (uint64_t i = 0; i < entries && reader.isGood(); ++i) reader.list(figures.stats.emplace_back());
  reader.value(figures.packed);
  reader.value(figures.pages.residentBytes);
  reader.value(figures.pages.hugeBytes);
  reader.list(figures.pages.refusal);
  if (!reader.isComplete()) return Error{"figures of another length than expected"};
  return figures;
}

std::string encodeTrace(const Trace& trace) {
  Writer writer;
  writer.value(trace.dropped);
  writer.list(trace.spans);
  return writer.take();
}

Expected<Trace> decodeTrace(std::string_view bytes) {
  Trace trace;
  Reader reader(bytes);
  reader.value(trace.dropped);
  reader.list(trace.spans);
  if (!reader.isComplete()) return Error{"a trace of another length than expected"};
  return trace;
}

}  // namespace sluice::tools
