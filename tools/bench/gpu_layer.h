// A program of one rank on a GPU, with tensors in its memory, ready to run any number of times; and the
// copies between such tensors and the host that a benchmark needs.
//
// A GpuLayer is a resource type, one owner. GpuTensors is a value that shares its memory. One thread uses
// each.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/api/context.h"
#include "runtime/gpu/gpu_backend.h"
#include "tools/bench/cases.h"
#include "tools/bench/program_tensors.h"

namespace sluice::tools {

struct GpuTensor {
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  DeviceMemory memory;

  int64_t elements() const;
};

using GpuTensors = std::map<std::string, GpuTensor, std::less<>>;

// Zero-filled memory for a tensor.
Expected<GpuTensor> makeGpuTensor(GpuBackend& backend, DType type, std::vector<int64_t> shape);

// All inputs and outputs of a program of one rank, except its expert ids, which the host reads. Inputs are
// random numbers, of the scale of a trained layer, whose period is a prime number, so that no two rows or
// experts have the same; outputs are 0.
Expected<GpuTensors> makeGpuTensors(GpuBackend& backend, const TaskProgram& program, int64_t tokens,
                                    int64_t rows);

// |ours - theirs| / |theirs|, Frobenius; infinity if a number is not finite. Tensors of as many elements, of
// fp32 or bf16 each.
Expected<double> measureDifference(GpuBackend& backend, const GpuTensor& ours, const GpuTensor& theirs);

// The parts of one step, in seconds. A part that is not known is 0.
struct StepSeconds {
  double step = 0;    // from the call until it returns
  double launch = 0;  // of all that runs on the GPU, by its clock
  double bind = 0;    // routing tables and thresholds, on the host
  double tables = 0;  // from the end of bind until the launch: copies, and the records of tasks
};

class GpuLayer {
 public:
  // `ids` [T, K] route it, with `rows` pairs. The backend's rank is the transport's, which has only one.
  // Errors: from Context and the backend.
  static Expected<std::unique_ptr<GpuLayer>> create(Program program, std::vector<int32_t> ids, int64_t rows,
                                                    std::shared_ptr<GpuBackend> backend,
                                                    Transport& transport);

  Expected<StepSeconds> run(Pass pass);

  const GpuTensor& at(std::string_view name) const { return tensors_.find(name)->second; }

 private:
  // When the launch of the last step was requested, and how long it took.
  struct Launch {
    int64_t begin = 0;  // as monotonicNanoseconds()
    double seconds = 0;
  };
  class TimedBackend;

  GpuLayer() = default;
  Status bind(const TaskProgram& program);

  std::vector<int32_t> ids_;
  GpuTensors tensors_;
  Launch launch_;
  std::unique_ptr<Context> context_;  // after what it uses
};

}  // namespace sluice::tools
