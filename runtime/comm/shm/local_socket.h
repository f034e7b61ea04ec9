// Sockets between processes of one machine that carry whole messages, and open files with them.
//
// Their names are abstract: they are in no directory and end with the socket. Only awaitReadable() blocks.
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

// Returns no file if another socket has the name.
Expected<FileDescriptor> listenLocally(const std::string& name, int backlog);
// Returns no file if no socket listens, or if its queue is full.
Expected<FileDescriptor> connectLocally(const std::string& name);
// Returns no file if no connection is waiting.
Expected<FileDescriptor> acceptLocally(const FileDescriptor& listener);

// Returns whether the file becomes readable, or the other side ends, within the time.
bool awaitReadable(const FileDescriptor& file, int64_t nanoseconds);

// The process at the other side, as it was when it connected or began to listen.
struct PeerProcess {
  pid_t process = 0;
  uid_t user = 0;
};
Expected<PeerProcess> findPeer(const FileDescriptor& socket);
// A file that becomes readable when that process ends; none if the system has no such files. The process must
// be connected, so that its number belongs to no other process.
FileDescriptor watchPeer(const FileDescriptor& socket, pid_t process);
FileDescriptor watchSelf();
bool isGone(const FileDescriptor& socket);

// Returns false if the other side has ended.
bool sendMessage(const FileDescriptor& socket, std::span<const std::byte> message,
                 const std::vector<int>& files = {});

struct LocalMessage {
  std::vector<std::byte> bytes;  // empty: the other side has ended
  std::vector<FileDescriptor> files;
};
// `limit`: longer messages are cut. Error: this process could not receive all the files.
Expected<LocalMessage> receiveMessage(const FileDescriptor& socket, size_t limit);

}  // namespace sluice
