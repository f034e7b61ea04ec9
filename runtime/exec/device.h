// Device: what runs the tasks of one rank, and the memory that they touch. CPU threads are one (runtime/cpu);
// a simulator or a GPU is another folder like it, which implements the two interfaces below.
//
// Division of work: this folder decides what a step is (plan, meeting, bind, thresholds, saved sets), on the
// host and alike for all devices. A device decides where memory is and when a ready task runs. What tasks
// touch belongs to the device: regions, scratch memory, event words. What ranks send each other before a step
// goes through the transport, and only the host touches it; the host also reads the caller's expert ids.
//
// A Device belongs to a workspace, and outlives the executors that it makes. An Executor belongs to one
// program at one rank. Executors of one device never run at the same time, because the workspace has turns;
// executors of different devices may. Virtual calls are per step or rarer, never per task.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/exec/step.h"

namespace sluice {

class Team;
class TraceRecorder;

// Memory at this rank. A value whose copies share it; the last one frees it. Where the device is not the
// host, only its tasks use `data`; a device without memory contents may give any address but null.
struct DeviceMemory {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<const void> owner;
};

// What a stream of the caller held when it was marked. The device that made it outlives it.
class StreamMark {
 public:
  virtual ~StreamMark() = default;
};

// The caller's function that returns where the rows of an output are to be written.
//
// Called once per step that writes them, when their number is known, by the thread that runs steps.
// `firstRows` has the first row of each expert of this rank, then the number of all rows. An error refuses
// the step at all ranks, before any rank sends; so does null, except for 0 rows (BoundTensor::rowsMayFail).
using RowMemory = std::function<Expected<void*>(std::span<const int32_t> firstRows)>;

// The packed weights of a rank, as a device counts them and callers see them.
struct PackedWeights {
  int64_t bytes = 0;        // memory taken
  int64_t panels = 0;       // pieces of weights that are packed with their present content
  int64_t withoutRoom = 0;  // pieces that are not packed because of ContextOptions::packedBytes
};

// A tensor of the caller, as bound.
struct BoundTensor {
  std::byte* data = nullptr;
  int64_t extent = 0;                     // its first dimension
  uint64_t version = 0;                   // of the binding: grows; 0 where it is not bound
  bool constant = false;                  // the content stays until the tensor is bound again
  std::shared_ptr<const RowMemory> rows;  // of an output of rows; null: the context's own memory
  bool rowsMayFail = false;               // so that all ranks must meet after `rows` was asked

  bool bound() const { return version > 0; }
};

// The arguments of Executor::run().
struct RunOptions {
  std::byte* scratch = nullptr;    // at least scratchBytes(), from Device::reserve(); keeps nothing
  double timeoutSeconds = 30;      // longest wait for one event
  TraceRecorder* trace = nullptr;  // null: not recorded. It has a ring per worker
};

// Runs the tasks of one program. One thread at a time makes the calls of a step, in the order of steps:
// prepare(), then run(), or release() where the step does not take place.
class Executor {
 public:
  virtual ~Executor() = default;

  // What runs tasks at the same time: threads, cores or blocks; at least 1.
  virtual int workers() const = 0;

  // Memory that run() needs beside regions. Executors of a workspace share it.
  virtual size_t scratchBytes() const = 0;

  // Called before the meeting of a step with what is bound, by buffer. Here a device notices a binding that
  // changed: it packs a weight anew, or makes a descriptor of it; and it takes what several devices share.
  // `callers`: threads that the calling thread lends until run() has returned; null: none. Error: this rank
  // refuses the step.
  virtual Status prepare(std::span<const BoundTensor> bound, Team* callers) = 0;

  // Gives back what prepare() took, as run() does at its end.
  virtual void release() {}

  // Runs all tasks of the step and returns their number. The same bits for any executor on the same kernels.
  // When it returns, even with an error, nothing of this rank uses bound memory any more; after success the
  // event words of the step are 0 again. Errors: a wait past the limit, a rank that is lost or has left. They
  // abort the transport with a report (report.h).
  virtual Expected<int64_t> run(const Step& step, const RunOptions& options) = 0;

  virtual PackedWeights packedWeights() const { return {}; }
};

struct LoadOptions {
  // One worker runs all tasks in key order and waits for each: the oracle. Else as many workers as the device
  // has, each of which tries the head of every lane that it serves.
  bool inKeyOrder = false;
  int64_t panelBytes = std::numeric_limits<int64_t>::max();  // the most for packed weights
};

class Device {
 public:
  virtual ~Device() = default;

  // Workers of its executors; 0 where the calling thread runs all tasks.
  virtual int workers() const = 0;

  // Memory for a region, of the size that the largest step needs: most of it is never touched. Any thread.
  // 0 bytes is legal.
  virtual Expected<DeviceMemory> reserve(size_t bytes) = 0;

  // Memory that is as large at all ranks, and which tasks of other ranks write to and signal in. Zero-filled.
  // Collective: by one thread of each rank, in the same order with the same `bytes`. Lives as long as the
  // transport.
  virtual Expected<SymmetricMemory> allocate(size_t bytes) = 0;

  // Whether the host can access what reserve() and allocate() give; else it reads that by read(), while no
  // task runs.
  virtual bool isOnHost() const { return true; }
  virtual Status read(void* to, const std::byte* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return {};
  }

  // `bytes` of a tensor of the caller, for the host to read until the next step: where they are if the host
  // can access them, else in `copy`. After beginAfter(), what was marked has ended.
  virtual Expected<const std::byte*> onHost(const std::byte* data, size_t /*bytes*/,
                                            std::vector<std::byte>& /*copy*/) {
    return data;
  }

  // Marks what the caller has enqueued so far in a stream of its own, a cudaStream_t. Any thread; does not
  // wait. Errors: the device has no streams; the stream is being captured, or is another device's.
  virtual Expected<std::shared_ptr<StreamMark>> mark(void* /*stream*/) {
    return Error{"found a stream for CPU threads, expected none: only steps on a GPU have streams"};
  }
  // Around a step, only for marks of this device. beginAfter(): its copies and tasks begin after what was
  // marked has ended. endBefore(): what is enqueued in the stream from now on begins after its tasks.
  virtual Status beginAfter(StreamMark& /*mark*/) { return {}; }
  virtual Status endBefore(StreamMark& /*mark*/) { return {}; }

  // The executor of a plan. Any thread; does not wait for other ranks.
  virtual Expected<std::unique_ptr<Executor>> load(std::shared_ptr<const Plan> plan,
                                                   const LoadOptions& options) = 0;
};

// Makes the device of a rank. The transport outlives it. Error: this rank cannot have it.
using DeviceMaker = std::function<Expected<std::unique_ptr<Device>>(Transport& transport)>;

}  // namespace sluice
