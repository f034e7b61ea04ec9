// Mailbox: a ring of messages that one rank writes into another's memory, word by word; and the memory of
// all mailboxes of a rank.
//
// Workers add to counters natively, and MPI must not add to the same counters, because some engines apply an
// accumulate as a plain load and store. So a signal travels as a message, and a thread of the receiver
// applies it. Every word of a message has the number of its lap around the ring: a message is complete when
// all of its words have arrived, in any order. The writer may be at most one ring ahead of the reader.
//
// The reader belongs to one thread and does not own the ring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/cache_line.h"
#include "runtime/comm/network/outbox.h"

namespace sluice::mpi {

using network::Message;
using network::MessageKind;

inline constexpr size_t kMessageWords = 4;
inline constexpr size_t kMailboxMessages = 512;
inline constexpr size_t kMailboxWords = kMailboxMessages * kMessageWords;

using MessageWords = std::array<uint64_t, kMessageWords>;

// The words of message `number` of a writer, counted from 0. They start at word number % kMailboxMessages *
// 4.
MessageWords encode(const Message& message, uint64_t number);

class MailboxReader {
 public:
  // `words`: a ring of kMailboxWords, all 0 before the first message.
  explicit MailboxReader(uint64_t* words) : words_(words) {}

  // The next message, if it is complete.
  std::optional<Message> take();
  uint64_t taken() const { return taken_; }

 private:
  uint64_t* words_;
  uint64_t taken_ = 0;
};

// What ranks write to each other besides puts. It has one section per source: the mailbox of the source's
// messages, the number of this rank's messages that the source has taken, and its abort message.
//
// Resource type. The layout is the same at all ranks. Other ranks write to it only through MPI.
class ControlMemory {
 public:
  static constexpr size_t kTakenOffset = kMailboxWords * sizeof(uint64_t);
  static constexpr size_t kAbortOffset = kTakenOffset + kCacheLine;
  static constexpr size_t kSectionBytes = kAbortOffset + network::kMaxAbortText;

  explicit ControlMemory(int ranks) : words_(static_cast<size_t>(ranks) * kSectionBytes / sizeof(uint64_t)) {}

  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }
  size_t size() const { return words_.size() * sizeof(uint64_t); }
  static size_t sectionOffset(int source) { return static_cast<size_t>(source) * kSectionBytes; }
  std::byte* section(int source) { return data() + sectionOffset(source); }

 private:
  std::vector<uint64_t> words_;  // zeros
};

}  // namespace sluice::mpi
