#include "tools/cli/run_job.h"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/api/make_device.h"
#include "tools/cli/files.h"
#include "tools/progress.h"

namespace sluice::tools {
namespace {

ContextOptions contextOptions(const RunOptions& options, DeviceMaker device) {
  ContextOptions result;
  result.threads = options.threads;
  result.device = std::move(device);
  result.executor = options.executor == "serial" ? ExecutorKind::kSerial : ExecutorKind::kParallel;
  result.timeoutSeconds = options.timeout;
  result.onHang = options.onHang;
  if (options.packedMib > 0) result.packedBytes = static_cast<int64_t>(options.packedMib * (1 << 20));
  return result;
}

// T of every rank, if the inputs are made from `spec` or the user gave it; otherwise empty.
Expected<std::vector<int64_t>> findTokens(const RunOptions& options, const TaskProgram& program,
                                          const InputsSpec& spec) {
  if (!options.seed && options.tokens.empty()) return std::vector<int64_t>();
  if (!options.seed && spec.tokens.ragged)
    return Error{fmt::format(
        "--tokens: found {}, expected numbers of tokens, because the inputs are not made", options.tokens)};
  Expected<std::vector<int64_t>> tokens = tokensOfRanks(program, spec);
  if (!tokens) return Error{fmt::format("{}: {}", options.program, tokens.error().message)};
  return tokens;
}

// One path per rank; none if the option was not given.
Expected<std::vector<std::string>> makeRankPaths(const std::string& option, int ranks) {
  if (option.empty()) return std::vector<std::string>();
  return rankPaths(option, ranks);
}

Status bindAll(TensorMap& tensors, Weights weights, Context& context) {
  for (auto& [name, tensor] : tensors)
    if (Status status = context.bind(name, {tensor.type(), tensor.shape(), tensor.data()}, weights); !status)
      return status;
  return {};
}

Status bindInputs(const Job& job, Rank& rank, Context& context) {
  for (BufferId id : job.tensors.inputs) {
    const std::string& name = job.program.tables().at(id).name;
    Tensor& tensor = rank.inputs.at(name);
    if (Status status = context.bind(name, {tensor.type(), tensor.shape(), tensor.data()}, job.weights);
        !status)
      return status;
  }
  return {};
}

// Outputs with extent rows belong to the context and are valid only until the next run.
Status keepRowOutputs(const Job& job, EntryId entry, Rank& rank, Context& context) {
  for (BufferId id : listEntryTensors(job.program.tables(), {entry}).outputs) {
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

// `progress`: of rank 0; other ranks have none, and neither has a job of another tool, which shows its own.
Status runSteps(const Job& job, Context& context, Rank& rank, std::optional<Progress>& progress) {
  for (int repetition = 0; repetition < job.repeat; ++repetition) {
    if (progress) progress->at(1, 1, fmt::format("repetition {} of {}", repetition + 1, job.repeat));
    const bool last = repetition + 1 == job.repeat;
    // each repetition computes the same
    copyStarts(job.program.tables(), rank.inputs, rank.outputs);
    if (last && !job.trace.empty()) context.startTrace();
    for (const EntryId entry : job.entries) {
      if (Status status = context.run(job.program.tables().at(entry).name); !status) return status;
      rank.figures.stats.push_back(context.lastRun());
      if (!last) continue;
      if (Status status = keepRowOutputs(job, entry, rank, context); !status) return status;
    }
  }
  rank.figures.packed = context.packedWeights();
  rank.figures.pages = hugePageUse();
  rank.trace = context.takeTrace();
  context.stopTrace();
  return {};
}

// Runs the job's number of repetitions, and one before them that is not counted. Keeps the results of the
// usual runs: other outputs are bound meanwhile, which no longer exist when this returns, so only the
// context's destructor may follow.
Status measureOverlap(const Job& job, Transport& transport, Context& context, Rank& rank,
                      std::optional<Progress>& progress) {
  const TaskProgram& program = job.program.tables();
  TensorMap spare = makeOutputs(program, transport.rank(), job.tensors.outputs, rank.figures.tokens);
  copyStarts(program, rank.inputs, spare);
  if (Status bound = bindAll(spare, Weights::kOrdinary, context); !bound) return bound;
  auto probe = OverlapProbe::create(transport, job.options.timeoutSeconds);
  if (!probe) return probe.error();
  std::vector<std::string> entries;
  for (EntryId entry : job.entries) {
    entries.push_back(program.at(entry).name);
    rank.overlap.push_back({entries.back(), {}});
  }
  for (int repetition = 0; repetition <= job.repeat; ++repetition) {
    if (progress)
      progress->at(1, 1, fmt::format("overlap: repetition {} of {}", repetition + 1, job.repeat + 1));
    const auto samples = probe->repeat(context, entries);
    if (!samples) return samples.error();
    for (size_t i = 0; i < entries.size() && repetition > 0; ++i)
      rank.overlap[i].samples.push_back((*samples)[i]);
  }
  return {};
}

Expected<TensorMap> makeTensors(const Job& job, int rank) {
  const TaskProgram& program = job.program.tables();
  return makeProgramInputs(program, *job.made, rank, job.tokens[static_cast<size_t>(rank)],
                           rowsWithoutIds(program, rank, job.tokens));
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
  template <class T, class Fields>
  void each(const std::vector<T>& values, const Fields& fields) {
    value(static_cast<uint64_t>(values.size()));
    for (const T& value : values) fields(value);
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
    good_ = good_ && bytes_.size() >= sizeof(T);
    if (good_) std::memcpy(&value, take(sizeof(T)), sizeof(T));
  }
  template <class T>
  void list(T& values) {
    constexpr size_t kEach = sizeof(values[0]);
    uint64_t size = 0;
    value(size);
    good_ = good_ && size <= bytes_.size() / kEach;
    if (!good_ || size == 0) return;
    values.resize(size);
    std::memcpy(values.data(), take(size * kEach), size * kEach);
  }
  template <class T, class Fields>
  void each(std::vector<T>& values, const Fields& fields) {
    uint64_t size = 0;
    value(size);
    good_ = good_ && size <= bytes_.size();  // each takes a byte at least
    for (uint64_t i = 0; good_ && i < size; ++i) fields(values.emplace_back());
  }
  bool isComplete() const { return good_ && bytes_.empty(); }

 private:
  const char* take(size_t bytes) {
    const char* const begin = bytes_.data();
    bytes_.remove_prefix(bytes);
    return begin;
  }
  std::string_view bytes_;
  bool good_ = true;
};

// The fields in order, for a Writer or a Reader.
constexpr auto kFigures = [](auto& archive, auto& figures) {
  archive.value(figures.tokens);
  archive.list(figures.stats);
  archive.value(figures.packed);
  archive.value(figures.pages.residentBytes);
  archive.value(figures.pages.hugeBytes);
  archive.list(figures.pages.refusal);
};
constexpr auto kTrace = [](auto& archive, auto& trace) {
  archive.value(trace.dropped);
  archive.list(trace.spans);
  archive.each(trace.routings, [&](auto& routing) {
    archive.value(routing.tokens);
    archive.list(routing.places);
  });
};

template <class T, class Fields>
std::string encode(const T& value, const Fields& fields) {
  Writer writer;
  fields(writer, value);
  return writer.take();
}

template <class T, class Fields>
Expected<T> decode(std::string_view bytes, const Fields& fields, std::string_view what) {
  T value;
  Reader reader(bytes);
  fields(reader, value);
  if (!reader.isComplete()) return Error{fmt::format("{} of another length than expected", what)};
  return value;
}

}  // namespace

Expected<Job> makeJob(const RunOptions& options) {
  Expected<Program> program = Program::load(options.program);
  if (!program) return program.error();
  if (options.ranks > 0 && options.ranks != program->ranks())
    return Error{fmt::format("--ranks: found {}, expected {}, the ranks that {} was compiled for",
                             options.ranks, program->ranks(), options.program)};
  Expected<std::vector<EntryId>> entries = findEntries(program->tables(), options.entries);
  if (!entries) return Error{fmt::format("{}: {}", options.program, entries.error().message)};
  const InputsSpec spec =
      inputsSpec(program->tables(), options.tokens, options.routing, options.seed.value_or(1));
  Expected<std::vector<int64_t>> tokens = findTokens(options, program->tables(), spec);
  if (!tokens) return tokens.error();
  Expected<std::vector<std::string>> in = makeRankPaths(options.in, program->ranks());
  if (!in) return in.error();
  Expected<std::vector<std::string>> out = makeRankPaths(options.out, program->ranks());
  if (!out) return out.error();
  Expected<std::vector<std::string>> onHang = makeRankPaths(options.onHang, program->ranks());
  if (!onHang) return onHang.error();
  Expected<DeviceMaker> device = makeDevice(options.device, program->ranks());
  if (!device) return Error{fmt::format("--device: {}", device.error().message)};
  if (*device && !options.trace.empty())
    return Error{fmt::format("--trace: found {}, expected none, because steps on a GPU cannot be traced",
                             options.trace)};
  EntryTensors tensors = listEntryTensors(program->tables(), *entries);
  return Job{std::move(*program),
             std::move(*entries),
             std::move(tensors),
             options.seed ? std::optional(spec) : std::nullopt,
             std::move(*tokens),
             std::move(*in),
             std::move(*out),
             options.trace,
             std::move(*onHang),
             contextOptions(options, std::move(*device)),
             options.pack == "once" ? Weights::kConstant : Weights::kOrdinary,
             options.repeat,
             options.overlap,
             options.overlapJson};
}

Expected<Rank> loadRank(const Job& job, int number) {
  const std::string path =
      job.made ? fmt::format("inputs of rank {}", number) : job.in[static_cast<size_t>(number)];
  Expected<TensorMap> tensors = job.made ? makeTensors(job, number) : readSafetensors(path);
  if (!tensors) return tensors.error();
  const TaskProgram& program = job.program.tables();
  const Expected<int64_t> tokens = checkInputs(program, number, job.tensors.inputs, *tensors, job.tokens);
  if (!tokens) return Error{fmt::format("{}: {}", path, tokens.error().message)};
  Rank rank;
  rank.inputs = std::move(*tensors);
  rank.outputs = makeOutputs(program, number, job.tensors.outputs, *tokens);
  rank.figures.tokens = *tokens;
  return rank;
}

Status runRank(const Job& job, Transport& transport, Rank& rank) {
  // the others must get the error instead of waiting for a rank that is gone
  try {
    Expected<std::unique_ptr<Context>> context = Context::create(job.program, transport, job.options);
    if (!context) return context.error();
    if (Status status = bindInputs(job, rank, **context); !status) return status;
    if (Status status = bindAll(rank.outputs, Weights::kOrdinary, **context); !status) return status;
    std::optional<Progress> progress;
    if (transport.rank() == 0 && job.overlapJson.empty()) progress.emplace(Redraw::kAtSteps);
    if (Status status = runSteps(job, **context, rank, progress); !status || !job.overlap) return status;
    return measureOverlap(job, transport, **context, rank, progress);
  } catch (const std::exception& error) {
    return Error{fmt::format("rank {}: {}", transport.rank(), error.what())};
  }
}

std::string encodeFigures(const RankFigures& figures) { return encode(figures, kFigures); }
Expected<RankFigures> decodeFigures(std::string_view bytes) {
  return decode<RankFigures>(bytes, kFigures, "figures");
}

std::string encodeTrace(const Trace& trace) { return encode(trace, kTrace); }
Expected<Trace> decodeTrace(std::string_view bytes) { return decode<Trace>(bytes, kTrace, "a trace"); }

}  // namespace sluice::tools
