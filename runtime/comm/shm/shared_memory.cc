#include "runtime/comm/shm/shared_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/huge_pages.h"
#include "runtime/comm/shm/control_block.h"
#include "runtime/comm/shm/life_watcher.h"
#include "runtime/comm/shm/rendezvous.h"
#include "runtime/comm/shm/shared_file.h"
#include "runtime/comm/transport.h"

namespace sluice {
namespace {

constexpr size_t kPage = 4096;

constexpr size_t roundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
constexpr size_t kControlBytes = roundUp(sizeof(ControlBlock), kPage);

// From /proc/N/stat: "N (name) T ...", where the name may contain any characters.
bool isStoppedProcess(int32_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const size_t name = line.rfind(") ");
  return name != line.npos && name + 2 < line.size() && (line[name + 2] == 'T' || line[name + 2] == 't');
}

class SharedMemoryTransport final : public Transport {
 public:
  SharedMemoryTransport(const SharedMemoryJob& job, Meeting meeting)
      : rank_(job.rank),
        size_(job.size),
        owner_(getpid()),
        file_(std::move(meeting.memory)),
        processes_(std::move(meeting.processes)),
        // fixed capacity: threads look allocations up while one makes a new one
        allocations_(kMaxSharedAllocations) {}
  ~SharedMemoryTransport() override;

  Status start(std::vector<LifeLine> lifeLines);

  std::string_view kind() const override { return "shm"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Expected<SymmetricHandle> allocate(size_t bytes) override;
  std::byte* local(SymmetricHandle handle) override { return address(rank_, handle); }
  std::byte* direct(int rank, SymmetricHandle handle) override { return address(rank, handle); }
  bool sharesMemory() const override { return true; }

  void put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) override {
    if (bytes > 0) std::memcpy(address(rank, handle) + offset, data, bytes);
  }
  void signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) override {
    addAndRing(address(rank, handle) + offset, n, control_->ranks[rank].bell);
  }
  void post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) override {
    storeAndRing(address(rank, handle) + offset, value, control_->ranks[rank].bell);
  }

  Doorbell& doorbell() override { return control_->ranks[rank_].bell; }

  void abort(const std::string& message) override;
  bool isAborted() const override { return control_->aborted.load(std::memory_order_seq_cst) != 0; }
  std::string abortMessage() const override;
  int lostRank() const override {
    return static_cast<int>(control_->lost.load(std::memory_order_seq_cst)) - 1;
  }
  bool hasLeft(int rank) const override {
    // pairs with the store in the destructor: all posts of that rank have arrived
    return control_->ranks[rank].left.load(std::memory_order_seq_cst) != 0;
  }
  bool isStopped(int rank) const override { return isStoppedProcess(processes_[rank]); }

 private:
  // The copies of all ranks, one after another.
  struct Allocation {
    SharedMapping mapping;
    std::byte* begin = nullptr;
    size_t stride = 0;
  };

  std::byte* address(int rank, SymmetricHandle handle) const {
    const Allocation& allocation = allocations_[handle.index];
    return allocation.begin + static_cast<size_t>(rank) * allocation.stride;
  }
  void ringAll();
  void processEnded(int rank);

  const int rank_;
  const int size_;
  const pid_t owner_;
  FileDescriptor file_;
  const std::vector<int32_t> processes_;
  size_t fileBytes_ = 0;
  SharedMapping controlMapping_;
  ControlBlock* control_ = nullptr;
  std::vector<Allocation> allocations_;
  uint32_t allocated_ = 0;
  size_t end_ = roundUp(kControlBytes, kHugePageBytes);  // bytes of the file in use; the same at all ranks
  std::mutex abortMutex_;                                // one message per rank
  std::unique_ptr<LifeWatcher> watcher_;
};

SharedMemoryTransport::~SharedMemoryTransport() {
  if (getpid() != owner_) {
    // a forked child has neither the thread nor the mappings; something else may now be at their addresses
    static_cast<void>(watcher_.release());
    static_cast<void>(new SharedMapping(std::move(controlMapping_)));
    static_cast<void>(new std::vector<Allocation>(std::move(allocations_)));
    return;
  }
  if (control_) {
    control_->ranks[rank_].left.store(1, std::memory_order_seq_cst);  // pairs with hasLeft()
    ringAll();
  }
  watcher_.reset();  // before the members that its thread uses
}

Status SharedMemoryTransport::start(std::vector<LifeLine> lifeLines) {
  auto fileBytes = sharedFileBytes(file_.get());
  if (!fileBytes) return fileBytes.error();
  fileBytes_ = *fileBytes;
  auto mapping = SharedMapping::map(file_.get(), 0, kControlBytes, kPage);
  if (!mapping) return mapping.error();
  controlMapping_ = std::move(*mapping);
  control_ = reinterpret_cast<ControlBlock*>(controlMapping_.data());
  auto watcher = LifeWatcher::start(std::move(lifeLines), [this](int rank) { processEnded(rank); });
  if (!watcher) return watcher.error();
  watcher_ = std::move(*watcher);
  return {};
}

Expected<SymmetricHandle> SharedMemoryTransport::allocate(size_t bytes) {
  if (allocated_ == kMaxSharedAllocations)
    return Error{fmt::format("more than {} symmetric allocations", kMaxSharedAllocations)};
  const uint32_t index = allocated_;
  const size_t most = (fileBytes_ - end_) / static_cast<size_t>(size_);
  if (bytes > most)
    return Error{fmt::format(
        "symmetric allocation {} has {} bytes at each of {} ranks, but shared memory has room for {}", index,
        bytes, size_, most)};
  uint64_t first = 0;
  const uint64_t own = bytes * kMaxProcesses + static_cast<uint64_t>(rank_) + 1;
  if (!control_->allocations[index].compare_exchange_strong(first, own)) {
    const uint64_t found = (first - 1) / kMaxProcesses;
    if (found != bytes)
      return Error{fmt::format("symmetric allocation {} has {} bytes at rank {} and {} at rank {}", index,
                               found, (first - 1) % kMaxProcesses, bytes, rank_)};
  }
  const size_t alignment = wantsHugePages(bytes) ? kHugePageBytes : kPage;
  Allocation allocation;
  allocation.stride = roundUp(bytes, alignment);
  const size_t begin = roundUp(end_, alignment);
  const size_t total = allocation.stride * static_cast<size_t>(size_);
  if (total > fileBytes_ - std::min(begin, fileBytes_))
    return Error{
        fmt::format("symmetric allocation {} of {} bytes per rank is more than what is left", index, bytes)};
  auto mapping = SharedMapping::map(file_.get(), begin, total, alignment);
  if (!mapping) return mapping.error();
  allocation.mapping = std::move(*mapping);
  allocation.begin = allocation.mapping.data();
  allocations_[index] = std::move(allocation);
  end_ = begin + total;
  ++allocated_;
  return SymmetricHandle{index};
}

void SharedMemoryTransport::abort(const std::string& message) {
  {
    std::lock_guard lock(abortMutex_);
    if (isAborted()) return;
    RankControl& own = control_->ranks[rank_];
    own.messageLength = static_cast<uint32_t>(std::min(message.size(), kMaxAbortMessage));
    std::memcpy(own.message, message.data(), own.messageLength);
    uint32_t none = 0;
    // pairs with isAborted() and abortMessage(). If another rank was first, nobody reads this rank's message.
    control_->aborted.compare_exchange_strong(none, static_cast<uint32_t>(rank_) + 1,
                                              std::memory_order_seq_cst);
  }
  ringAll();
}

std::string SharedMemoryTransport::abortMessage() const {
  const uint32_t aborted = control_->aborted.load(std::memory_order_seq_cst);
  if (aborted == 0) return {};
  const RankControl& of = control_->ranks[aborted - 1];
  return std::string(of.message, std::min<size_t>(of.messageLength, kMaxAbortMessage));
}

void SharedMemoryTransport::ringAll() {
  for (int rank = 0; rank < size_; ++rank) control_->ranks[rank].bell.ring();
}

// Called by the watcher's thread.
void SharedMemoryTransport::processEnded(int rank) {
  if (!hasLeft(rank)) {
    uint32_t lost = 0;
    if (control_->lost.compare_exchange_strong(lost, static_cast<uint32_t>(rank) + 1)) lost = rank + 1;
    abort(fmt::format("rank {} (process {}) has died", lost - 1, processes_[lost - 1]));
  }
  // the rank that aborted first may have died before it rang
  doorbell().ring();
}

}  // namespace

Expected<std::unique_ptr<Transport>> joinSharedMemory(const SharedMemoryJob& job) {
  if (job.size < 1 || job.size > kMaxProcesses)
    return Error{fmt::format("shared memory for {} ranks, expected 1 to {}", job.size, kMaxProcesses)};
  if (job.rank < 0 || job.rank >= job.size)
    return Error{fmt::format("shared memory for rank {}, expected 0 to {}", job.rank, job.size - 1)};
  if (job.name.empty() || job.name.size() > kMaxJobName)
    return Error{
        fmt::format("the name of the job has {} bytes, expected 1 to {}", job.name.size(), kMaxJobName)};
  if (Status sane = checkTimeLimit(job.timeoutSeconds); !sane) return sane.error();
  auto meeting = meet(job);
  if (!meeting) return meeting.error();
  std::vector<LifeLine> lifeLines = std::move(meeting->lifeLines);
  auto transport = std::make_unique<SharedMemoryTransport>(job, std::move(*meeting));
  if (Status started = transport->start(std::move(lifeLines)); !started) return started.error();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace sluice
