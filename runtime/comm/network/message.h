// Message: what ranks that reach each other through a network send each other besides puts.
//
// Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

}  // namespace sluice::network
