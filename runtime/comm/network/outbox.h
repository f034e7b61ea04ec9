// Messages, which ranks that reach each other through a network send each other besides puts; and the outbox:
// what the workers of a rank want to send, in order, until the courier takes it in batches.
//
// Puts are copied, so the caller continues at once. The memory of the copies is bounded: a put that finds no
// room waits until the courier has sent something. That wait ends, because it depends only on the couriers of
// the two ranks, which wait for no task. Messages are small and never wait.
//
// Any number of threads may put and post; one thread takes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sluice::network {

enum class MessageKind : uint16_t {
  kSignal = 1,    // adds `value` to the counter at `offset` of allocation `handle`
  kPost = 2,      // stores `value` there
  kAddress = 3,   // allocation `handle` is at address `value` of the sender
  kAllocate = 4,  // the sender makes allocation `handle` of `value` bytes; its address follows
  kAborted = 5,   // because rank `offset` - 1 was lost, if not 0; the text of `value` bytes comes with it
  kLeft = 6,      // the last message of the sender about its work
  kSawLeft = 7,   // the sender has received the other's kLeft, and so everything before it
};

struct Message {
  MessageKind kind = MessageKind::kSignal;
  uint32_t handle = 0;
  uint64_t offset = 0;  // 48 bits
  uint64_t value = 0;
  friend bool operator==(const Message&, const Message&) = default;
};

inline constexpr uint32_t kMaxHandles = 4096;  // every `handle` is below this

inline constexpr size_t kMaxAbortText = 1024;  // bytes; longer ones lose their end

// Why a step ended.
struct Abort {
  std::string text;
  int lost = -1;  // the rank that was lost, if that was the cause
};

// Bytes for offset `offset` of allocation `handle` at another rank.
struct PutOrder {
  uint32_t handle = 0;
  size_t offset = 0;
  size_t bytes = 0;
  std::unique_ptr<std::byte[]> data;
};

// What goes to one rank with one flush: the messages that may be read once all its puts have arrived.
struct Batch {
  std::vector<Message> before;  // requested before the first put
  std::vector<PutOrder> puts;
  std::vector<Message> after;
  size_t bytes = 0;  // total of the puts

  bool empty() const { return before.empty() && puts.empty() && after.empty(); }
};

struct BatchLimits {
  size_t bytes = size_t{512} << 10;  // a batch ends with the put that reaches it
  size_t messages = 256;             // in all
  bool share = true;                 // false: a batch ends with its first message
};

class Outbox {
 public:
  static constexpr size_t kRoom = size_t{256} << 20;        // bytes of puts
  static constexpr size_t kLargestPut = size_t{256} << 10;  // larger puts are split

  explicit Outbox(int ranks, size_t room = kRoom) : room_(room), queues_(static_cast<size_t>(ranks)) {}

  // Returns false if there was no room within the time limit; a part of the bytes may then be queued.
  bool put(int rank, uint32_t handle, size_t offset, const void* data, size_t bytes, double seconds);
  void post(int rank, const Message& message);

  Batch take(int rank, const BatchLimits& limits);
  // Frees the room of puts that have been sent.
  void release(size_t bytes);
  // Drops all puts, signals and posts, including later ones. Other messages are still taken.
  void abandon();
  bool isEmpty(int rank);

 private:
  struct Order {
    bool isPut = false;
    PutOrder put;
    Message message;
  };

  const size_t room_;
  std::mutex mutex_;
  std::condition_variable released_;
  size_t held_ = 0;  // bytes of puts, including taken ones until they are released
  bool abandoned_ = false;
  std::vector<std::deque<Order>> queues_;  // by rank
};

}  // namespace sluice::network
