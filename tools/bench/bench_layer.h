// A layer that is compiled and ready to run on this machine any number of times: the path of a user, from the
// graph through the compiler to the executor.
//
// BenchTensors are the tensors that the caller of a program owns. A BenchLayer is a program with its
// contexts, one per rank; the tensors must outlive it. Resource types, one owner. One thread uses them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/base/encodings.h"
#include "runtime/base/expected.h"
#include "tools/bench/cases.h"
#include "tools/bench/clock.h"
#include "tools/bench/measure_gpu.h"
#include "tools/io/tensor.h"

namespace sluice::tools {

// "ordinary" or "constant".
std::string_view weightsName(Weights weights);

struct BenchOptions {
  int threads = 1;  // total of all ranks
  int repeat = 11;
  bool forward = true;
  bool backward = true;
  ClockKind clock = ClockKind::kWall;
  bool scaling = true;                   // also measure with one thread
  Weights weights = Weights::kOrdinary;  // constant: packed before anything is measured
  Encodings encodings;
  std::vector<std::string> peers;  // of peerNames()
  std::string target = "cpu";      // device model of the compiler
  std::vector<std::string> targetFolders;
  // Called between measurements, before repetition `step` of `steps`; what it disturbs must be over when it
  // returns.
  std::function<void(int step, int steps)> between = {};
};

// Compiles for `threads` threads per rank; 0: for the cores of the target. Sizes are chosen for the rows of
// the case.
Expected<Program> compileRows(const RowsCase& rows, int threads, const BenchOptions& options);
Expected<Program> compileLayer(const LayerCase& layer, int threads, const BenchOptions& options);

// Compiles only the products of `layer`, for as many ranks.
Expected<Program> compileLayerRows(const LayerCase& layer, int threads, const BenchOptions& options);

// Compiles a case that is measured on a GPU for the cores of `options.target`.
Expected<GpuPrograms> compileForGpu(const GpuCase& c, const BenchOptions& options);

// By rank, then by name: inputs, and outputs that the caller owns.
using BenchTensors = std::vector<TensorMap>;

// Random inputs of the scale of a trained layer. Errors: more bytes than are available.
Expected<BenchTensors> makeRowsTensors(const Program& program, const RowsCase& rows,
                                       const BenchOptions& options);
Expected<BenchTensors> makeLayerTensors(const Program& program, const LayerCase& layer);

// The bytes of a layer at all ranks, including those that the runtime holds. checkBytes() fails if they are
// not available.
double bytesOfLayer(const Program& program, const LayerCase& layer);
Status checkBytes(double bytes);

// The tensors of the products of `layer` that it does not share with the layer itself: rows instead of
// tokens.
BenchTensors makeRowsOfLayer(const Program& program, const BenchTensors& layer);

// The rows of each expert of all ranks.
std::vector<int64_t> rowsOfExperts(const BenchTensors& tensors, int64_t experts);

class BenchLayer {
 public:
  // For each rank, binds the tensors of `own`, or of `shared` if `own` has none that fits, by name and
  // extent. Errors: like Context.
  static Expected<std::unique_ptr<BenchLayer>> create(Program program, int threads, Weights weights,
                                                      BenchTensors& own, BenchTensors* shared = nullptr);
  ~BenchLayer();

  // Runs the entry on all ranks. Errors: like Context::run().
  Expected<Duration> run(Pass pass);

  // An output with extent rows of rank 0; valid until the next run.
  Expected<TensorView> output(std::string_view name) { return contexts_.front()->output(name); }

 private:
  explicit BenchLayer(Program program) : program_(std::move(program)), local_(program_.ranks()) {}

  Program program_;
  LocalRanks local_;
  std::vector<std::unique_ptr<Context>> contexts_;
};

}  // namespace sluice::tools
