#include "runtime/comm/mpi/mailbox.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

namespace sluice::mpi {
namespace {

void write(std::vector<uint64_t>& ring, const Message& message, uint64_t number) {
  std::ranges::copy(encode(message, number), ring.begin() + number % kMailboxMessages * kMessageWords);
}

TEST_CASE("messages come out as they went in, over many laps of the ring") {
  std::vector<uint64_t> ring(kMailboxWords);
  MailboxReader reader(ring.data());
  for (uint64_t number = 0; number < 5 * kMailboxMessages + 3; ++number) {
    CHECK_FALSE(reader.take().has_value());
    const Message message{number % 2 ? MessageKind::kSignal : MessageKind::kPost,
                          static_cast<uint32_t>(number % 4096), (uint64_t{1} << 48) - 1 - number,
                          ~uint64_t{0} - number};
    write(ring, message, number);
    const auto taken = reader.take();
    REQUIRE(taken.has_value());
    CHECK(*taken == message);
  }
  CHECK(reader.taken() == 5 * kMailboxMessages + 3);
}

TEST_CASE("a message is not there until its last word is, whichever that is") {
  const Message message{MessageKind::kPost, 7, 64, 0};
  for (size_t last = 0; last < kMessageWords; ++last) {
    std::vector<uint64_t> ring(kMailboxWords);
    MailboxReader reader(ring.data());
    const MessageWords words = encode(message, 0);
    for (size_t i = 0; i < kMessageWords; ++i)
      if (i != last) ring[i] = words[i];
    CHECK_FALSE(reader.take().has_value());
    ring[last] = words[last];
    CHECK(reader.take() == message);
  }
}

TEST_CASE("a message behind one that is missing waits for it") {
  std::vector<uint64_t> ring(kMailboxWords);
  MailboxReader reader(ring.data());
  write(ring, {MessageKind::kSignal, 1, 8, 3}, 1);
  CHECK_FALSE(reader.take().has_value());
  write(ring, {MessageKind::kSignal, 1, 0, 2}, 0);
  CHECK(reader.take()->value == 2);
  CHECK(reader.take()->value == 3);
}

}  // namespace
}  // namespace sluice::mpi
