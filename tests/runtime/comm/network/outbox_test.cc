#include "runtime/comm/network/outbox.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

namespace sluice::network {
namespace {

Message signal(uint64_t n) { return {MessageKind::kSignal, 0, 0, n}; }

bool put(Outbox& outbox, const std::string& text, double seconds = 0) {
  return outbox.put(1, 0, 0, text.data(), text.size(), seconds);
}

std::string textOf(const PutOrder& order) {
  return {reinterpret_cast<const char*>(order.data.get()), order.bytes};
}

TEST_CASE("a batch takes puts and the messages behind them, and tells those that came before") {
  Outbox outbox(2);
  outbox.post(1, signal(1));
  REQUIRE(put(outbox, "one"));
  outbox.post(1, signal(2));
  REQUIRE(put(outbox, "two"));
  outbox.post(1, signal(3));
  const Batch batch = outbox.take(1, {});
  REQUIRE(batch.before.size() == 1);
  CHECK(batch.before[0].value == 1);
  REQUIRE(batch.puts.size() == 2);
  CHECK(textOf(batch.puts[0]) == "one");
  CHECK(textOf(batch.puts[1]) == "two");
  REQUIRE(batch.after.size() == 2);
  CHECK(batch.after[1].value == 3);
  CHECK(batch.bytes == 6);
  CHECK(outbox.isEmpty(1));
  CHECK(outbox.take(1, {}).empty());
}

TEST_CASE("where signals do not share a flush a batch ends with the first") {
  Outbox outbox(2);
  REQUIRE(put(outbox, "one"));
  outbox.post(1, signal(1));
  outbox.post(1, signal(2));
  const BatchLimits limits{.share = false};
  CHECK(outbox.take(1, limits).after.size() == 1);
  CHECK(outbox.take(1, limits).before.size() == 1);
  CHECK(outbox.isEmpty(1));
}

TEST_CASE("a batch ends with the put that reaches its bytes, and keeps the messages behind that") {
  Outbox outbox(2);
  REQUIRE(put(outbox, "0123456789"));
  outbox.post(1, signal(1));
  REQUIRE(put(outbox, "x"));
  const BatchLimits limits{.bytes = 10};
  Batch batch = outbox.take(1, limits);
  CHECK(batch.puts.size() == 1);
  CHECK(batch.after.size() == 1);
  batch = outbox.take(1, limits);
  CHECK(batch.puts.size() == 1);
  CHECK(batch.after.empty());
}

TEST_CASE("large puts are cut and arrive in order") {
  Outbox outbox(2);
  std::string large(3 * Outbox::kLargestPut + 5, 'a');
  large.back() = 'z';
  REQUIRE(outbox.put(1, 4, 1000, large.data(), large.size(), 0));
  const Batch batch = outbox.take(1, {.bytes = large.size()});
  REQUIRE(batch.puts.size() == 4);
  size_t next = 1000;
  for (const PutOrder& order : batch.puts) {
    CHECK(order.handle == 4);
    CHECK(order.offset == next);
    next += order.bytes;
  }
  CHECK(next == 1000 + large.size());
  CHECK(textOf(batch.puts.back()).back() == 'z');
}

TEST_CASE("a put without room waits for what was sent, and gives up at its limit") {
  Outbox outbox(2, 8);
  REQUIRE(put(outbox, "12345678"));
  CHECK_FALSE(put(outbox, "9", 0.01));
  // what was taken is still held, until the network has it
  const Batch batch = outbox.take(1, {});
  CHECK_FALSE(put(outbox, "9", 0.01));
  std::atomic<bool> done{false};
  std::thread worker([&] {
    CHECK(put(outbox, "9", 60));
    done = true;
  });
  outbox.release(batch.bytes);
  worker.join();
  CHECK(done);
  CHECK(outbox.take(1, {}).bytes == 1);
}

TEST_CASE("a put larger than the room goes when there is nothing else") {
  Outbox outbox(2, 4);
  CHECK(put(outbox, "12345678"));
  CHECK_FALSE(put(outbox, "1", 0));
}

TEST_CASE("when all is given up puts vanish and nobody waits") {
  Outbox outbox(2, 4);
  REQUIRE(put(outbox, "1234"));
  std::thread worker([&] { CHECK(put(outbox, "5", 60)); });
  outbox.abandon();
  worker.join();
  CHECK(outbox.isEmpty(1));
  outbox.post(1, signal(1));
  CHECK(outbox.take(1, {}).before.size() == 1);
}

}  // namespace
}  // namespace sluice::network
