// UcxMeeting: memory in which forked ranks exchange their addresses, as PyTorch does over a process group.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "runtime/comm/ucx/ucx.h"

namespace sluice {

class UcxMeeting {
 public:
  static constexpr int kMaxRanks = 8;

  // In the parent, before it forks.
  explicit UcxMeeting(int ranks)
      : ranks_(ranks),
        board_(static_cast<Board*>(
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (ranks > kMaxRanks || board_ == MAP_FAILED) std::abort();
#ifdef __SANITIZE_THREAD__
    // UCX replaces madvise(), which threads call while they end, when ThreadSanitizer no longer knows them
    setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 1);
#endif
  }
  ~UcxMeeting() { munmap(board_, sizeof(Board)); }
  UcxMeeting(const UcxMeeting&) = delete;
  UcxMeeting& operator=(const UcxMeeting&) = delete;

  // In a child; collective, any number of times. The ranks are on two machines, as far as they know, so that
  // those of one machine share memory and the others use UCX; with `messages` each is on a machine of its
  // own.
  Expected<std::unique_ptr<Transport>> join(int rank, bool messages, double timeoutSeconds) {
    auto endpoint = openUcx();
    if (!endpoint) return endpoint.error();
    const std::string& address = (*endpoint)->address();
    if (address.size() > kMaxBytes) return Error{fmt::format("an address of {} bytes", address.size())};
    board_->bytes[rank] = address.size();
    std::memcpy(board_->addresses[rank], address.data(), address.size());
    if (!meet()) return Error{"not all ranks came to the meeting"};
    UcxJob job{"", rank, {}, timeoutSeconds};
    for (int peer = 0; peer < ranks_; ++peer)
      job.peers.push_back(
          {{board_->addresses[peer], board_->bytes[peer]}, std::to_string(messages ? peer : peer % 2)});
    // named by the machine, too, because in truth they have one network namespace
    job.name = fmt::format("ucx-{:08x}-{}-{}", any_, meetings_, job.peers[static_cast<size_t>(rank)].machine);
    if (!meet()) return Error{"not all ranks have read the addresses"};  // the next ones replace these
    return joinUcx(**endpoint, job);
  }

 private:
  static constexpr size_t kMaxBytes = 8192;

  // Zeros at first.
  struct Board {
    std::atomic<int> arrived;
    size_t bytes[kMaxRanks];
    char addresses[kMaxRanks][kMaxBytes];
  };

  // Returns true when all ranks have called it, false after a minute.
  bool meet() {
    board_->arrived.fetch_add(1);
    ++meetings_;
    for (int i = 0; board_->arrived.load() < meetings_ * ranks_; ++i) {
      if (i == 60'000) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  const int ranks_;
  const unsigned any_ = std::random_device()();  // other containers have processes with the same numbers
  Board* const board_;
  int meetings_ = 0;
};

}  // namespace sluice
