// ModelGroup: ranks whose devices are the hardware model of ops/gpu, as partitions of one launch for each
// step.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/gpu/partitions.h"

namespace sluice {

struct ModelOptions {
  int blocks = 1;             // per rank
  int columns = 128;          // of a tile: 128 or 256
  uint64_t seed = 1;          // of the first launch; each has the next
  bool hasOwnMemory = false;  // tensors of the caller are out of reach, as those of the host are for a GPU
  bool isLogging = false;     // of one rank
  const bool* isCaptured = nullptr;   // streams of the caller are being captured; null: they are not
  std::function<void()> stream = {};  // what a stream of the caller does, between follow() and settle()
};

// Resource type, which outlives its devices. Ranks are threads, of which each runs its own steps. They wait
// for each other as long as their options say, and waits in a kernel end after 0.05 s of the model's clock at
// most.
class ModelGroup {
 public:
  ModelGroup(int ranks, const ModelOptions& options) : partitions_(ranks), options_(options) {}

  const ModelOptions& options() const { return options_; }
  std::atomic<int64_t> copiesIn = 0;  // to memory of devices, so far
  // What was done in the order of streams of the caller, so far, by one rank: "mark 7", where 7 is the
  // address of the stream, "follow 7", "settle", "precede 7", "launch", "copy out 36", of so many bytes.
  std::vector<std::string> log;
  BackendMaker backends();

  // Error: what the model found wrong, besides those of Partitions.
  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds);

 private:
  Expected<std::vector<StepOutcome>> launch(std::span<const StepTables* const> all, double timeoutSeconds);

  Partitions partitions_;
  const ModelOptions options_;
  uint64_t launches_ = 0;
};

}  // namespace sluice
