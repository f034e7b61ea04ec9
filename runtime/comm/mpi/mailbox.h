// Mailbox: a ring of messages that one rank writes into another's memory, word by word.
//
// Workers add to counters natively, and MPI must not add to the same counters, because some engines apply an
// accumulate as a plain load and store. So a signal travels as a message, and a thread of the receiver
// applies it. Every word of a message has the number of its lap around the ring: a message is complete when
// all of its words have arrived, in any order. The writer may be at most one ring ahead of the reader.
//
// Value types; the reader belongs to one thread and does not own the ring.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::mpi {

enum class MessageKind : uint16_t {
  kSignal = 1,    // adds `value` to the counter at `offset` of allocation `handle`
  kPost = 2,      // stores `value` there
  kAddress = 3,   // allocation `handle` is at address `value` of the sender
  kAllocate = 4,  // the sender makes allocation `handle` of `value` bytes; its address follows
  kAborted = 5,   // because rank `offset` - 1 was lost, if not 0; the text of `value` bytes was put before
  kLeft = 6,      // the last message of the sender
};

struct Message {
  MessageKind kind = MessageKind::kSignal;
  uint32_t handle = 0;
  uint64_t offset = 0;  // 48 bits
  uint64_t value = 0;
  friend bool operator==(const Message&, const Message&) = default;
};

inline constexpr uint32_t kMaxHandles = 4096;  // every `handle` is below this

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

}  // namespace sluice::mpi
