#include "tests/testing/faulty_transport.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/base/clock.h"

namespace sluice {
namespace {

constexpr uint64_t kLongestDelay = 400'000;   // ns
constexpr int64_t kLongestHold = 1'000'000;   // ns, of what waits for later operations
constexpr uint64_t kLongestNotice = 500'000;  // ns from a death to the word of it
constexpr size_t kBoards = 3;                 // a context's first allocations: identities, meetings, counts

}  // namespace

FaultyTransport::FaultyTransport(Transport& real, Filter keep)
    : ForwardingTransport(real), keep_(std::move(keep)) {}

FaultyTransport::FaultyTransport(Transport& real, const FaultPlan& plan, std::shared_ptr<FaultWorld> world)
    : ForwardingTransport(real), plan_(plan), world_(std::move(world)) {}

FaultyTransport::~FaultyTransport() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (courier_.joinable()) courier_.join();
}

int64_t FaultyTransport::operations() const {
  std::lock_guard lock(mutex_);
  return issued_;
}

Expected<SymmetricHandle> FaultyTransport::allocate(size_t bytes) {
  auto handle = real_.allocate(bytes);
  std::lock_guard lock(mutex_);
  if (handle && boards_.size() < kBoards) boards_.push_back(handle->index);
  return handle;
}

std::string FaultyTransport::abortMessage() const {
  return dead_.load() ? fmt::format("rank {} is dead itself", rank()) : real_.abortMessage();
}

int FaultyTransport::lostRank() const {
  const int lost = world_ ? world_->lost.load() : -1;
  return lost >= 0 ? lost : real_.lostRank();
}

void FaultyTransport::put(int rank, SymmetricHandle handle, size_t offset, const void* data, size_t bytes) {
  if (plan_.isNone()) return real_.put(rank, handle, offset, data, bytes);
  Operation operation{Kind::kPut, rank, handle, offset, 0, {}, {}, 0, 0};
  operation.bytes.resize(bytes);
  if (bytes > 0) std::memcpy(operation.bytes.data(), data, bytes);
  issue(std::move(operation));
}

void FaultyTransport::signal(int rank, SymmetricHandle handle, size_t offset, uint64_t n) {
  if (keep_ && !keep_(rank, handle, offset, n)) return;
  if (plan_.isNone()) return real_.signal(rank, handle, offset, n);
  issue({Kind::kSignal, rank, handle, offset, n, {}, {}, 0, 0});
}

void FaultyTransport::post(int rank, SymmetricHandle handle, size_t offset, uint64_t value) {
  if (plan_.isNone()) return real_.post(rank, handle, offset, value);
  issue({Kind::kPost, rank, handle, offset, value, {}, {}, 0, 0});
}

void FaultyTransport::issue(Operation operation) {
  std::lock_guard lock(mutex_);
  operation.thread = std::this_thread::get_id();
  const int64_t number = ++issued_;
  if (dead_.load() || !strike(operation)) return;
  const uint64_t random =
      mixBits(mixBits(plan_.seed, static_cast<uint64_t>(rank())), static_cast<uint64_t>(number));
  const auto percent = [&](int shift) { return static_cast<int>((random >> shift) % 100); };
  const bool isPut = operation.kind == Kind::kPut;
  const bool late = plan_.overtake ? isPut && !isBoard(operation.handle) : percent(0) < plan_.delay;
  if (late) {
    operation.due = monotonicNanoseconds() + static_cast<int64_t>((random >> 32) % kLongestDelay);
  } else if (percent(8) < plan_.reorder) {
    operation.due = monotonicNanoseconds() + kLongestHold;
    operation.after = number + 1 + static_cast<int64_t>((random >> 40) % 4);
  }
  if (isPut && percent(16) < plan_.duplicate) postpone(operation);
  if (operation.due > 0 || isBlocked(operation, late_.size())) return postpone(std::move(operation));
  perform(operation);
  if (!late_.empty()) wake_.notify_one();  // something may have waited for later operations
}

bool FaultyTransport::isBoard(SymmetricHandle handle) const {
  return std::find(boards_.begin(), boards_.end(), handle.index) != boards_.end();
}

// Carries out the plan's fault if it is this operation's turn; false: the operation is lost.
bool FaultyTransport::strike(Operation& operation) {
  if (rank() != plan_.rank) return true;
  const bool isPut = operation.kind == Kind::kPut;
  if (issued_ == plan_.die) return die(operation), false;
  if (issued_ == plan_.cut || (issued_ == plan_.drop && isPut)) cutOff_.insert(operation.rank);
  if (issued_ == plan_.drop || cutOff_.contains(operation.rank)) return false;
  if (isPut && isBoard(operation.handle) && ++blocks_ == plan_.corrupt) {
    const uint64_t random = mixBits(plan_.seed, 1);
    operation.bytes[random % operation.bytes.size()] ^= static_cast<std::byte>(1 + (random >> 32) % 255);
  }
  return true;
}

// From here on nothing of this rank arrives; the others are notified a little later.
void FaultyTransport::die(const Operation& operation) {
  const uint64_t random = mixBits(plan_.seed, 2);
  if (operation.kind == Kind::kPut && random % 2 == 0)
    real_.put(operation.rank, operation.handle, operation.offset, operation.bytes.data(),
              operation.bytes.size() / 2);
  if (!world_) ::kill(::getpid(), SIGKILL);
  late_.clear();
  dead_.store(true);
  deathKnown_ = monotonicNanoseconds() + static_cast<int64_t>((random >> 8) % kLongestNotice);
  if (!courier_.joinable()) courier_ = std::thread([this] { deliver(); });
  wake_.notify_one();
}

// Returns whether one of the late operations before `before` must be carried out first.
bool FaultyTransport::isBlocked(const Operation& operation, size_t before) const {
  if (operation.kind == Kind::kPut || plan_.overtake) return false;
  for (size_t i = 0; i < before; ++i) {
    const Operation& earlier = late_[i];
    if (earlier.rank != operation.rank) continue;
    if (earlier.kind == Kind::kPut && earlier.thread == operation.thread) return true;
    const bool sameWord =
        earlier.handle.index == operation.handle.index && earlier.offset == operation.offset;
    if (earlier.kind == Kind::kPost && operation.kind == Kind::kPost && sameWord) return true;
  }
  return false;
}

void FaultyTransport::perform(const Operation& operation) {
  const auto& [kind, rank, handle, offset, value, bytes, thread, due, after] = operation;
  if (kind == Kind::kPut) real_.put(rank, handle, offset, bytes.data(), bytes.size());
  if (kind == Kind::kSignal) real_.signal(rank, handle, offset, value);
  if (kind == Kind::kPost) real_.post(rank, handle, offset, value);
}

void FaultyTransport::postpone(Operation operation) {
  late_.push_back(std::move(operation));
  if (!courier_.joinable()) courier_ = std::thread([this] { deliver(); });
  wake_.notify_one();
}

void FaultyTransport::deliver() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (deathKnown_ > 0 && (stop_ || monotonicNanoseconds() >= deathKnown_)) {
      deathKnown_ = 0;
      lock.unlock();
      reportDeath();
      lock.lock();
    }
    if (deliverOne()) continue;
    if (stop_ && late_.empty()) return;
    if (late_.empty() && deathKnown_ == 0)
      wake_.wait(lock);
    else
      wake_.wait_for(lock, std::chrono::microseconds(50));
  }
}

// The last operation that is allowed now, so that order is lost wherever possible. At the end all are
// allowed.
bool FaultyTransport::deliverOne() {
  const int64_t now = monotonicNanoseconds();
  for (size_t i = late_.size(); i-- > 0;) {
    const Operation& operation = late_[i];
    const bool isTime = stop_ || now >= operation.due || (operation.after > 0 && issued_ >= operation.after);
    if (!isTime || isBlocked(operation, i)) continue;
    perform(operation);
    late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

FaultyRanks::FaultyRanks(int size, const FaultPlan& plan) : group_(size) {
  const auto world = std::make_shared<FaultWorld>();
  for (int rank = 0; rank < size; ++rank)
    ranks_.push_back(std::make_unique<FaultyTransport>(group_.transport(rank), plan, world));
}

void FaultyTransport::reportDeath() {
  int nobody = -1;
  world_->lost.compare_exchange_strong(nobody, rank());
  real_.abort(fmt::format("rank {} has died", rank()));
}

}  // namespace sluice
