#include "runtime/comm/shm/local_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice {
namespace {

constexpr size_t kMaxFiles = 253;  // per message; the kernel's limit
#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;  // Linux 6.5; older headers lack it
#endif

// `name` has at most 107 bytes.
socklen_t makeAddress(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);  // after a zero byte: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

FileDescriptor makeSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Error failure(const char* what) { return Error{fmt::format("cannot {}: {}", what, std::strerror(errno))}; }

}  // namespace

Expected<FileDescriptor> listenLocally(const std::string& name, int backlog) {
  FileDescriptor listener = makeSocket();
  if (!listener) return failure("make a local socket");
  sockaddr_un address;
  const socklen_t length = makeAddress(name, address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE) return FileDescriptor();
    return failure("name a local socket");
  }
  if (listen(listener.get(), backlog) != 0) return failure("listen at a local socket");
  return listener;
}

Expected<FileDescriptor> connectLocally(const std::string& name) {
  FileDescriptor socket = makeSocket();
  if (!socket) return failure("make a local socket");
  sockaddr_un address;
  const socklen_t length = makeAddress(name, address);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) return socket;
  if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return FileDescriptor();
  return failure("connect to a local socket");
}

Expected<FileDescriptor> acceptLocally(const FileDescriptor& listener) {
  FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket || errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return socket;
  return failure("accept at a local socket");
}

bool awaitReadable(const FileDescriptor& file, int64_t nanoseconds) {
  pollfd poller{file.get(), POLLIN, 0};
  const int64_t milliseconds = std::clamp<int64_t>(nanoseconds / 1'000'000 + 1, 0, 1'000'000'000);
  return poll(&poller, 1, static_cast<int>(milliseconds)) > 0;
}

Expected<PeerProcess> findPeer(const FileDescriptor& socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return failure("identify the connected process");
  return PeerProcess{credentials.pid, credentials.uid};
}

FileDescriptor watchPeer(const FileDescriptor& socket, pid_t process) {
  int file = -1;
  socklen_t length = sizeof(file);
  if (getsockopt(socket.get(), SOL_SOCKET, kPeerPidfd, &file, &length) == 0) return FileDescriptor(file);
  if (process <= 0) return {};
  FileDescriptor opened(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  // still connected, so the number still belonged to that process
  if (isGone(socket)) opened.reset();
  return opened;
}

FileDescriptor watchSelf() { return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }

bool isGone(const FileDescriptor& socket) {
  pollfd poller{socket.get(), 0, 0};
  return poll(&poller, 1, 0) != 0;
}

bool sendMessage(const FileDescriptor& socket, std::span<const std::byte> message,
                 const std::vector<int>& files) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!files.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    std::memset(control, 0, header.msg_controllen);
    cmsghdr* const attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(attached), files.data(), files.size() * sizeof(int));
  }
  // no SIGPIPE: it is normal that a peer has ended
  return sendmsg(socket.get(), &header, MSG_NOSIGNAL) == static_cast<ssize_t>(message.size());
}

Expected<LocalMessage> receiveMessage(const FileDescriptor& socket, size_t limit) {
  LocalMessage message;
  message.bytes.resize(limit);
  iovec part{message.bytes.data(), limit};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t count = recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  message.bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
  if (count <= 0) return message;
  for (cmsghdr* attached = CMSG_FIRSTHDR(&header); attached; attached = CMSG_NXTHDR(&header, attached)) {
    if (attached->cmsg_level != SOL_SOCKET || attached->cmsg_type != SCM_RIGHTS) continue;
    std::vector<int> files((attached->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(files.data(), CMSG_DATA(attached), files.size() * sizeof(int));
    for (const int file : files) message.files.emplace_back(file);
  }
  if (header.msg_flags & MSG_CTRUNC)
    return Error{"cannot take over the shared memory of the job: this process may not open so many files"};
  return message;
}

}  // namespace sluice
