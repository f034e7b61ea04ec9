// Rank 0's side of a rendezvous.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>

#include "runtime/base/clock.h"
#include "runtime/comm/shm/local_socket.h"
#include "runtime/comm/shm/rendezvous.h"
#include "runtime/comm/shm/shared_file.h"

namespace sluice {
namespace {

constexpr size_t kMaxSilent = 64;  // connections that have not identified themselves

class Host {
 public:
  Host(const SharedMemoryJob& job, FileDescriptor listener, int64_t deadline)
      : job_(job), listener_(std::move(listener)), deadline_(deadline), ranks_(job.size) {}

  Expected<Meeting> meet(LifeLineKind kind) {
    const Status all = awaitAll();
    // no socket listens from here on: a later rank belongs to another job of that name
    listener_.reset();
    auto meeting = all ? welcome(kind) : Expected<Meeting>(all.error());
    if (!meeting) refuseAll(meeting.error().message);
    return meeting;
  }

 private:
  struct Connection {
    FileDescriptor socket;
    pid_t process = 0;
  };

  Status awaitAll();
  Status look(int64_t open);
  Status acceptOne();
  Status hear(Connection connection);
  std::string missing() const;
  Expected<Meeting> welcome(LifeLineKind kind);
  Expected<std::vector<FileDescriptor>> openLifeLines();
  Status sendWelcome(const Connection& connection, const std::vector<std::byte>& message,
                     const std::vector<int>& files);
  void refuse(const Connection& connection, const std::string& reason);
  void refuseAll(const std::string& reason);

  const SharedMemoryJob& job_;
  FileDescriptor listener_;
  const int64_t deadline_;
  std::deque<Connection> silent_;  // oldest first
  std::vector<std::optional<Connection>> ranks_;
  int there_ = 1;
};

Status Host::awaitAll() {
  while (there_ < job_.size) {
    const int64_t open = deadline_ - monotonicNanoseconds();
    if (open <= 0)
      return Error{fmt::format("waited {:g} s for all {} ranks of job '{}' to join; missing: {}",
                               job_.timeoutSeconds, job_.size, job_.name, missing())};
    if (Status looked = look(open); !looked) return looked;
  }
  return {};
}

// Waits for the next event and handles it.
Status Host::look(int64_t open) {
  std::vector<pollfd> pollers{{listener_.get(), POLLIN, 0}};
  for (const Connection& connection : silent_) pollers.push_back({connection.socket.get(), POLLIN, 0});
  for (const auto& rank : ranks_) pollers.push_back({rank ? rank->socket.get() : -1, POLLIN, 0});
  const int64_t milliseconds = std::min<int64_t>(open / 1'000'000 + 1, 1'000'000'000);
  if (poll(pollers.data(), pollers.size(), static_cast<int>(milliseconds)) <= 0) return {};

  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    // a waiting rank sends nothing, so an event means that it has ended
    if (pollers[1 + silent_.size() + rank].revents)
      return Error{fmt::format("rank {} (process {}) of job '{}' has ended before all ranks had joined", rank,
                               ranks_[rank]->process, job_.name)};
  }
  std::deque<Connection> stillSilent;
  for (size_t i = 0; !silent_.empty(); ++i) {
    Connection connection = std::move(silent_.front());
    silent_.pop_front();
    if (!pollers[1 + i].revents) {
      stillSilent.push_back(std::move(connection));
    } else if (Status heard = hear(std::move(connection)); !heard) {
      return heard;
    }
  }
  silent_ = std::move(stillSilent);
  return pollers[0].revents ? acceptOne() : Status();
}

Status Host::acceptOne() {
  auto socket = acceptLocally(listener_);
  if (!socket) return socket.error();
  if (!*socket) return {};
  Connection connection{std::move(*socket), 0};
  auto peer = findPeer(connection.socket);
  if (!peer) return {};
  if (peer->user != geteuid()) {
    refuse(connection,
           fmt::format("job '{}' is of user {}, not of user {}", job_.name, geteuid(), peer->user));
    return {};
  }
  connection.process = peer->process;
  silent_.push_back(std::move(connection));
  if (silent_.size() > kMaxSilent) silent_.pop_front();
  return {};
}

// Handles the first message of a connection. An error ends the job; a stranger is only refused.
Status Host::hear(Connection connection) {
  auto message = receiveMessage(connection.socket, sizeof(RendezvousHello) + 1);
  if (!message || message->bytes.empty()) return {};
  RendezvousHello hello{};
  std::memcpy(&hello, message->bytes.data(), std::min(message->bytes.size(), sizeof(hello)));
  if (message->bytes.size() < sizeof(hello.magic) + sizeof(hello.version) ||
      hello.magic != kRendezvousMagic) {
    refuse(connection, fmt::format("found {} bytes, expected the greeting of a rank of job '{}'",
                                   message->bytes.size(), job_.name));
    return {};
  }
  Status admitted;
  if (hello.version != kRendezvousVersion || message->bytes.size() != sizeof(hello)) {
    admitted = Error{fmt::format(
        "process {} tried to join job '{}' with version {} of shared memory, but rank 0 has version {}",
        connection.process, job_.name, hello.version, kRendezvousVersion)};
  } else if (hello.size != job_.size) {
    admitted = Error{fmt::format("rank {} (process {}) of job '{}' expects {} ranks, but rank 0 expects {}",
                                 hello.rank, connection.process, job_.name, hello.size, job_.size)};
  } else if (hello.rank < 1 || hello.rank >= job_.size) {
    admitted = Error{fmt::format("process {} tried to join job '{}' as rank {}, expected 1 to {}",
                                 connection.process, job_.name, hello.rank, job_.size - 1)};
  } else if (ranks_[hello.rank]) {
    admitted = Error{fmt::format("rank {} of job '{}' joined twice: as process {} and as process {}",
                                 hello.rank, job_.name, ranks_[hello.rank]->process, connection.process)};
  }
  if (!admitted) {
    refuse(connection, admitted.error().message);
    return admitted;
  }
  ranks_[hello.rank] = std::move(connection);
  ++there_;
  return {};
}

std::string Host::missing() const {
  std::vector<int> missing;
  for (int rank = 1; rank < job_.size; ++rank)
    if (!ranks_[rank]) missing.push_back(rank);
  return fmt::format("{}", fmt::join(missing, ", "));
}

// The life lines of all ranks, or none if any of them is unavailable.
Expected<std::vector<FileDescriptor>> Host::openLifeLines() {
  std::vector<FileDescriptor> files;
  files.push_back(watchSelf());
  for (int rank = 1; rank < job_.size; ++rank) {
    files.push_back(watchPeer(ranks_[rank]->socket, ranks_[rank]->process));
    if (!files.back() && isGone(ranks_[rank]->socket))
      return Error{fmt::format("rank {} (process {}) of job '{}' has ended before all ranks had joined", rank,
                               ranks_[rank]->process, job_.name)};
  }
  if (!std::all_of(files.begin(), files.end(), [](const FileDescriptor& file) { return bool(file); }))
    files.clear();
  return files;
}

// The system limits how many files are in flight at once; a rank that receives some makes room. If the rank
// has ended by now, all notice it through its life line.
Status Host::sendWelcome(const Connection& connection, const std::vector<std::byte>& message,
                         const std::vector<int>& files) {
  while (!sendMessage(connection.socket, message, files) && !isGone(connection.socket)) {
    if (monotonicNanoseconds() >= deadline_)
      return Error{fmt::format("cannot send {} open files to process {} of job '{}': {}", files.size(),
                               connection.process, job_.name, std::strerror(errno))};
    usleep(1000);
  }
  return {};
}

Expected<Meeting> Host::welcome(LifeLineKind kind) {
  Meeting meeting;
  auto memory = makeSharedFile();
  if (!memory) return memory.error();
  meeting.memory = std::move(*memory);
  std::vector<FileDescriptor> lines;
  if (kind == LifeLineKind::kProcessFiles) {
    auto opened = openLifeLines();
    if (!opened) return opened.error();
    lines = std::move(*opened);
  }
  meeting.processes.push_back(getpid());
  for (int rank = 1; rank < job_.size; ++rank) meeting.processes.push_back(ranks_[rank]->process);

  const RendezvousReply reply;
  std::vector<std::byte> message(sizeof(reply) + meeting.processes.size() * sizeof(int32_t));
  std::memcpy(message.data(), &reply, sizeof(reply));
  std::memcpy(message.data() + sizeof(reply), meeting.processes.data(), message.size() - sizeof(reply));
  std::vector<int> files{meeting.memory.get()};
  for (const FileDescriptor& line : lines) files.push_back(line.get());
  for (int rank = 1; rank < job_.size; ++rank) {
    Connection& connection = *ranks_[rank];
    if (Status sent = sendWelcome(connection, message, files); !sent) return sent.error();
    meeting.lifeLines.push_back(
        {rank, std::move(lines.empty() ? connection.socket : lines[static_cast<size_t>(rank)])});
  }
  return meeting;
}

void Host::refuse(const Connection& connection, const std::string& reason) {
  RendezvousReply reply;
  reply.refused = 1;
  std::vector<std::byte> message(sizeof(reply) + reason.size());
  std::memcpy(message.data(), &reply, sizeof(reply));
  std::memcpy(message.data() + sizeof(reply), reason.data(), reason.size());
  sendMessage(connection.socket, message);
}

void Host::refuseAll(const std::string& reason) {
  for (const auto& rank : ranks_)
    if (rank) refuse(*rank, reason);
  for (const Connection& connection : silent_) refuse(connection, reason);
}

}  // namespace

Expected<Meeting> hostRendezvous(const SharedMemoryJob& job, LifeLineKind kind, int64_t deadline) {
  auto listener = listenLocally(rendezvousName(job.name), job.size + static_cast<int>(kMaxSilent));
  if (!listener) return listener.error();
  if (!*listener) return Error{fmt::format("another process waits as rank 0 of job '{}' already", job.name)};
  return Host(job, std::move(*listener), deadline).meet(kind);
}

}  // namespace sluice
