// Sockets between processes of one machine that carry whole messages, and open files with them.
//
// Names are abstract: they are in no directory, and end with the socket. Only await() blocks.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/base/file_descriptor.h"

namespace sluice {

// No file where another socket has the name.
Expected<FileDescriptor> listenLocally(const std::string& name, int backlog);
// No file where no socket listens, or too many wait there.
Expected<FileDescriptor> connectLocally(const std::string& name);
// No file where no connection is waiting.
Expected<FileDescriptor> acceptLocally(const FileDescriptor& listener);

// Whether it can be read from, or the other side has ended, within the time.
bool awaitReadable(const FileDescriptor& file, int64_t nanoseconds);

// The process at the other side, as it was when it connected or began to listen.
struct PeerProcess {
  pid_t process = 0;
  uid_t user = 0;
};
Expected<PeerProcess> peerOf(const FileDescriptor& socket);
// A file that is readable once that process has ended; none where the system has no such files. The process
// must be connected, so that its number belongs to no other process.
FileDescriptor watchPeer(const FileDescriptor& socket, pid_t process);
FileDescriptor watchSelf();
bool isGone(const FileDescriptor& socket);

// False if the other side has ended.
bool sendMessage(const FileDescriptor& socket, std::span<const std::byte> message,
                 const std::vector<int>& files = {});

struct LocalMessage {
  std::vector<std::byte> bytes;  // empty: the other side has ended
  std::vector<FileDescriptor> files;
};
// Errors: files that did not fit into this process. `limit`: more bytes are cut off.
Expected<LocalMessage> receiveMessage(const FileDescriptor& socket, size_t limit);

}  // namespace sluice
