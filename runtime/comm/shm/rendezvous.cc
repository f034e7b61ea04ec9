#include "runtime/comm/shm/rendezvous.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/comm/shm/control_block.h"
#include "runtime/comm/shm/local_socket.h"

namespace sluice {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
// A rank waits a little longer than rank 0, which can name the missing ranks.
constexpr int64_t kGrace = 1000 * kMillisecond;
constexpr size_t kMaxReason = 1024;
static_assert(kMaxProcesses * sizeof(int32_t) <= kMaxReason);

void sleepFor(int64_t nanoseconds) {
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000),
                      static_cast<long>(nanoseconds % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

// Rank 0 may start later than this rank.
Expected<FileDescriptor> findHost(const SharedMemoryJob& job, int64_t deadline) {
  for (int64_t pause = kMillisecond;; pause = std::min(2 * pause, 16 * kMillisecond)) {
    auto socket = connectLocally(rendezvousName(job.name));
    if (!socket || *socket) return socket;
    if (monotonicNanoseconds() >= deadline)
      return Error{fmt::format("waited {:g} s for rank 0 of job '{}' to join", job.timeoutSeconds, job.name)};
    sleepFor(pause);
  }
}

Expected<LocalMessage> awaitReply(const SharedMemoryJob& job, const FileDescriptor& socket,
                                  int64_t deadline) {
  for (int64_t open; (open = deadline + kGrace - monotonicNanoseconds()) > 0;)
    if (awaitReadable(socket, open)) return receiveMessage(socket, sizeof(RendezvousReply) + kMaxReason);
  return Error{
      fmt::format("waited {:g} s for the other ranks of job '{}' to join", job.timeoutSeconds, job.name)};
}

}  // namespace

std::string rendezvousName(const std::string& job) { return fmt::format("sluice-{}-{}", geteuid(), job); }

Expected<Meeting> visitRendezvous(const SharedMemoryJob& job, int64_t deadline) {
  auto socket = findHost(job, deadline);
  if (!socket) return socket.error();
  auto host = findPeer(*socket);
  if (!host) return host.error();
  if (host->user != geteuid())
    return Error{fmt::format("a process of user {} waits as rank 0 of job '{}' of user {}", host->user,
                             job.name, geteuid())};
  RendezvousHello hello;
  hello.rank = job.rank;
  hello.size = job.size;
  sendMessage(*socket, std::as_bytes(std::span(&hello, 1)));  // if this fails, the reply has the reason
  auto message = awaitReply(job, *socket, deadline);
  if (!message) return message.error();
  if (message->bytes.empty())
    return Error{fmt::format("rank 0 of job '{}' has ended before all ranks had joined", job.name)};

  RendezvousReply reply{0, 0, 0};
  std::memcpy(&reply, message->bytes.data(), std::min(message->bytes.size(), sizeof(reply)));
  const std::span<const std::byte> rest =
      std::span(message->bytes).subspan(std::min(message->bytes.size(), sizeof(reply)));
  if (reply.magic != kRendezvousMagic)
    return Error{fmt::format("the process that waits as rank 0 of job '{}' is not a Sluice rank", job.name)};
  if (reply.refused) return Error{std::string(reinterpret_cast<const char*>(rest.data()), rest.size())};

  Meeting meeting;
  meeting.processes.resize(static_cast<size_t>(job.size));
  const size_t files = message->files.size();
  if (rest.size() != meeting.processes.size() * sizeof(int32_t) ||
      (files != 1 && files != 1 + meeting.processes.size()))
    return Error{fmt::format("rank 0 of job '{}' sent {} bytes and {} files, expected the start of {} ranks",
                             job.name, rest.size(), files, job.size)};
  std::memcpy(meeting.processes.data(), rest.data(), rest.size());
  meeting.memory = std::move(message->files[0]);
  if (files == 1) meeting.lifeLines.push_back({0, std::move(*socket)});
  for (size_t rank = 0; rank + 1 < files; ++rank)
    if (rank != static_cast<size_t>(job.rank))
      meeting.lifeLines.push_back({static_cast<int>(rank), std::move(message->files[1 + rank])});
  return meeting;
}

Expected<Meeting> meet(const SharedMemoryJob& job, LifeLineKind kind) {
  const int64_t deadline = monotonicNanoseconds() + limitNanoseconds(job.timeoutSeconds);
  return job.rank == 0 ? hostRendezvous(job, kind, deadline) : visitRendezvous(job, deadline);
}

}  // namespace sluice
