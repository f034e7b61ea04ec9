#include "runtime/gpu/cuda/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "runtime/abi/gpu/chain_plan.h"
#include "runtime/gpu/cuda/cuda_group.h"
#include "runtime/gpu/gpu_device.h"

namespace sluice {
namespace {

Status toStatus(cuda::Failure failure) {
  return failure == nullptr ? Status() : Status(Error{fmt::format("CUDA: {}", failure)});
}

// An event in a stream of the caller.
class CudaMark final : public StreamMark {
 public:
  static Expected<std::shared_ptr<StreamMark>> make(void* stream, int device) {
    const auto fail = [](const Status& status) {
      return Error{fmt::format("the caller's stream: {}", status.error().message)};
    };
    std::shared_ptr<CudaMark> mark(new CudaMark(stream));
    bool isCaptured = false;
    Status ok = toStatus(cuda::choose(device));
    if (ok) ok = toStatus(cuda::isCaptured(stream, &isCaptured));
    if (!ok) return fail(ok);
    if (isCaptured)
      return Error{
          "the caller's stream is being captured into a CUDA graph, of which a step cannot be a part: the "
          "host "
          "reads its routing"};
    ok = toStatus(cuda::makeEvent(&mark->event_));
    if (ok) ok = toStatus(cuda::record(mark->event_, stream));
    if (!ok) return fail(ok);
    return std::shared_ptr<StreamMark>(std::move(mark));
  }
  ~CudaMark() override {
    if (event_ != nullptr) cuda::endEvent(event_);
  }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  Status precede(void* work) const { return toStatus(cuda::waitFor(work, event_)); }
  // With the same event, which nobody waits for any more.
  Status follow(void* work) const {
    const Status recorded = toStatus(cuda::record(event_, work));
    return recorded ? toStatus(cuda::waitFor(stream_, event_)) : recorded;
  }

 private:
  explicit CudaMark(void* stream) : stream_(stream) {}

  void* const stream_;
  void* event_ = nullptr;
};

// A rank's side of a group.
class CudaBackend final : public GpuBackend {
 public:
  CudaBackend(std::shared_ptr<CudaGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int blocks() const override { return group_->blocks(); }
  int tileColumns() const override { return gpu::kLaunchedColumns; }

  Expected<DeviceMemory> reserve(size_t bytes) override { return group_->reserve(bytes, false); }
  Expected<SymmetricMemory> allocate(size_t bytes) override { return group_->allocate(rank_, bytes); }
  std::byte* peer(int rank, SymmetricHandle handle) override { return group_->symmetric(rank, handle); }

  bool reaches(const void* data) const override { return cuda::reaches(data, group_->device()); }
  bool isOnHost(const void* data) const override { return cuda::isOnHost(data); }
  Status copyIn(std::byte* to, const void* from, size_t bytes) override {
    return bytes == 0 ? Status() : onDevice([&] { return cuda::copyIn(to, from, bytes, group_->stream()); });
  }
  Status copyOut(void* to, const std::byte* from, size_t bytes) override {
    return bytes == 0 ? Status() : onDevice([&] { return cuda::copyOut(to, from, bytes, group_->stream()); });
  }
  Status zero(std::byte* data, size_t bytes) override {
    return onDevice([&] { return cuda::zero(data, bytes, group_->stream()); });
  }

  Expected<std::shared_ptr<StreamMark>> mark(void* stream) override {
    return CudaMark::make(stream, group_->device());
  }
  Status follow(StreamMark& mark) override {
    const cuda::Failure chosen = cuda::choose(group_->device());
    return chosen != nullptr ? toStatus(chosen) : static_cast<CudaMark&>(mark).precede(group_->stream());
  }
  Status settle() override {
    return onDevice([&] { return cuda::settle(group_->stream()); });
  }
  Status precede(StreamMark& mark) override {
    const cuda::Failure chosen = cuda::choose(group_->device());
    return chosen != nullptr ? toStatus(chosen) : static_cast<CudaMark&>(mark).follow(group_->stream());
  }

  Status makeMap(const gpu::MappedMatrix& matrix, gpu::TensorMap& map) const override {
    return toStatus(cuda::makeMap(matrix, &map));
  }

  Expected<StepOutcome> run(const StepTables& tables, Transport& transport, double timeoutSeconds) override {
    return group_->run(tables, transport, timeoutSeconds);
  }

 private:
  template <class Call>
  Status onDevice(const Call& call) const {
    const cuda::Failure chosen = cuda::choose(group_->device());
    return toStatus(chosen != nullptr ? chosen : call());
  }

  const std::shared_ptr<CudaGroup> group_;
  const int rank_;
};

// N of "cuda" or "cuda:N".
Expected<int> numberOf(std::string_view name) {
  int number = 0;
  const std::string_view digits = name == "cuda" ? "0" : name.starts_with("cuda:") ? name.substr(5) : "";
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || number < 0)
    return Error{fmt::format("device '{}': expected cuda or cuda:N", name)};
  return number;
}

std::string failureText(std::string_view name, const std::string& why) {
  return fmt::format("device '{}': {}", name, why);
}

// 13.0
std::string versionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// The number of a GPU that the kernel runs on, and what it is.
Expected<std::pair<int, GpuFacts>> findGpu(std::string_view name) {
  const auto number = numberOf(name);
  if (!number) return number.error();
  const auto fail = [&](const Status& status) { return Error{failureText(name, status.error().message)}; };
  GpuFacts facts;
  if (Status ok = toStatus(cuda::describeVersions(&facts.driver, &facts.runtime)); !ok) return fail(ok);
  if (Status ok = checkGpu(facts); !ok) return fail(ok);
  int count = 0;
  if (Status ok = toStatus(cuda::countDevices(&count)); !ok) return fail(ok);
  if (*number >= count)
    return fail(Error{fmt::format("found {} CUDA devices, expected more than {}", count, *number)});
  cuda::DeviceInfo info{};
  if (Status ok = toStatus(cuda::describe(*number, &info)); !ok) return fail(ok);
  facts.name = info.name;
  facts.multiprocessors = info.multiprocessors;
  facts.clock = info.clock;
  facts.major = info.major;
  facts.minor = info.minor;
  facts.bytes = info.bytes;
  facts.freeBytes = info.freeBytes;
  if (Status ok = checkGpu(facts); !ok) return fail(ok);
  return std::pair(*number, facts);
}

}  // namespace

bool isCudaName(std::string_view name) { return numberOf(name).ok(); }

Status checkGpu(const GpuFacts& facts) {
  if (facts.driver == 0) return Error{"found no driver for CUDA (libcuda.so.1): install NVIDIA's"};
  // within a major version older drivers run programs of newer ones
  if (facts.driver / 1000 < facts.runtime / 1000)
    return Error{
        fmt::format("the driver supports CUDA {}, expected {}.0 or newer: install a newer driver, or build "
                    "with an older nvcc",
                    versionText(facts.driver), facts.runtime / 1000)};
  if (facts.major != 9 || facts.minor != 0)
    return Error{fmt::format("{} has compute capability {}.{}, expected 9.0 (H100, H200, GH200)", facts.name,
                             facts.major, facts.minor)};
  return {};
}

Expected<BackendMaker> findCuda(std::string_view name, int ranks, int blocks) {
  const auto gpu = findGpu(name);
  if (!gpu) return gpu.error();
  const auto& [number, facts] = *gpu;
  const auto fail = [&](const std::string& why) { return Error{failureText(name, why)}; };
  const int most = facts.multiprocessors / ranks;  // blocks that run at the same time
  if (ranks > gpu::kMaxPartitions || most == 0)
    return fail(fmt::format("found {} ranks, expected at most {} on one GPU", ranks,
                            std::min(gpu::kMaxPartitions, facts.multiprocessors)));
  if (blocks > most)
    return fail(
        fmt::format("found {} blocks of a rank, expected at most {} of {} ranks on {} multiprocessors",
                    blocks, most, ranks, facts.multiprocessors));
  auto group = CudaGroup::make(number, blocks == 0 ? most : blocks, ranks);
  if (!group) return fail(group.error().message);
  return BackendMaker([group = *group](Transport& transport) -> Expected<std::unique_ptr<GpuBackend>> {
    if (transport.size() != group->ranks() || (transport.size() > 1 && transport.kind() != "threads"))
      return Error{"ranks on one GPU are threads of one process"};
    return std::unique_ptr<GpuBackend>(new CudaBackend(group, transport.rank()));
  });
}

Expected<GpuFacts> describeCuda(std::string_view name) {
  const auto gpu = findGpu(name);
  if (!gpu) return gpu.error();
  return gpu->second;
}

}  // namespace sluice
