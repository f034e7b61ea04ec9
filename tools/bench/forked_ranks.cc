#include "tools/bench/forked_ranks.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace sluice::tools {
namespace {

constexpr uint32_t kLongest = 1 << 20;  // bytes of an answer

struct Head {
  uint32_t failed = 0;
  uint32_t bytes = 0;
};

bool sendAll(int socket, const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    from += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool receiveAll(int socket, void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, to, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool sendAnswer(int socket, bool failed, std::string_view bytes) {
  bytes = bytes.substr(0, kLongest);
  const Head head{failed, static_cast<uint32_t>(bytes.size())};
  return sendAll(socket, &head, sizeof(head)) && sendAll(socket, bytes.data(), bytes.size());
}

}  // namespace

bool RankSocket::answer(std::string_view bytes) { return sendAnswer(socket_, false, bytes); }

bool RankSocket::next() {
  char request = 0;
  return receiveAll(socket_, &request, 1);
}

// The end of its socket ends a rank. Processes forked later have it open, too: closing it is not enough.
ForkedRanks::~ForkedRanks() {
  for (int socket : sockets_) {
    shutdown(socket, SHUT_RDWR);
    close(socket);
  }
  for (pid_t child : children_)
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
}

Status ForkedRanks::start(int ranks, const Body& body) {
  for (int rank = 0; rank < ranks; ++rank)
    if (Status forked = fork(rank, body); !forked) return forked;
  return {};
}

Status ForkedRanks::fork(int rank, const Body& body) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Error{fmt::format("cannot make a socket for rank {}: {}", rank, std::strerror(errno))};
  const pid_t parent = getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // with ends of this process open here, its end would not be seen
    close(ends[0]);
    for (int socket : sockets_) close(socket);
    RankSocket socket(ends[1]);
    const Status done = body(rank, socket);
    if (!done) sendAnswer(ends[1], true, done.error().message);
    _exit(done ? 0 : 1);
  }
  const int failure = errno;
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return Error{fmt::format("cannot start a process for rank {}: {}", rank, std::strerror(failure))};
  }
  sockets_.push_back(ends[0]);
  children_.push_back(child);
  return {};
}

// A rank that is gone is told by the answer that it does not give.
void ForkedRanks::ask() {
  for (int socket : sockets_) static_cast<void>(sendAll(socket, "g", 1));
}

Expected<std::string> ForkedRanks::answers() {
  Expected<std::string> result = std::string();
  for (size_t rank = 0; rank < sockets_.size(); ++rank) {
    Expected<std::string> own = receive(rank);
    // all are awaited: what a first error brings about at other ranks comes behind it
    if (result && (rank == 0 || !own)) result = std::move(own);
  }
  return result;
}

Expected<std::string> ForkedRanks::receive(size_t rank) {
  Head head;
  std::string bytes;
  if (receiveAll(sockets_[rank], &head, sizeof(head)) && head.bytes <= kLongest) {
    bytes.resize(head.bytes);
    if (receiveAll(sockets_[rank], bytes.data(), bytes.size())) {
      if (head.failed) return Error{bytes};
      return bytes;
    }
  }
  return Error{fmt::format("the process of rank {} ended without an answer", rank)};
}

}  // namespace sluice::tools
