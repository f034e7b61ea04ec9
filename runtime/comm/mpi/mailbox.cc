#include "runtime/comm/mpi/mailbox.h"

#include <atomic>

namespace sluice::mpi {
namespace {

constexpr int kLapShift = 48;
constexpr uint64_t kLow48 = (uint64_t{1} << kLapShift) - 1;

uint64_t countLaps(uint64_t number) { return (number / kMailboxMessages + 1) << kLapShift; }

}  // namespace

MessageWords encode(const Message& message, uint64_t number) {
  const uint64_t lap = countLaps(number);
  return {lap | uint64_t{static_cast<uint16_t>(message.kind)} << 32 | message.handle,
          lap | (message.offset & kLow48), lap | (message.value & kLow48), lap | message.value >> kLapShift};
}

std::optional<Message> MailboxReader::take() {
  uint64_t* slot = words_ + taken_ % kMailboxMessages * kMessageWords;
  const uint64_t lap = countLaps(taken_);
  MessageWords words;
  for (size_t i = 0; i < kMessageWords; ++i) {
    // pairs with the writer's accumulate: a reader that sees a message also sees what the writer flushed
    // before it
    words[i] = std::atomic_ref<uint64_t>(slot[i]).load(std::memory_order_acquire);
    if ((words[i] & ~kLow48) != lap) return std::nullopt;
  }
  ++taken_;
  return Message{static_cast<MessageKind>(words[0] >> 32 & 0xffff), static_cast<uint32_t>(words[0]),
                 words[1] & kLow48, (words[2] & kLow48) | words[3] << kLapShift};
}

}  // namespace sluice::mpi
