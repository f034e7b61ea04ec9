#include "runtime/comm/ucx/flight.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>

namespace sluice::ucx {
namespace {

using network::Batch;
using network::Message;
using network::MessageKind;

void addPut(Batch& batch, uint32_t handle, size_t offset, const std::string& text) {
  network::PutOrder put{handle, offset, text.size(), std::make_unique<std::byte[]>(text.size())};
  std::memcpy(put.data.get(), text.data(), text.size());
  batch.puts.push_back(std::move(put));
  batch.bytes += text.size();
}

std::string textOf(const ArrivedPut& put) {
  return {reinterpret_cast<const char*>(put.bytes.data()), put.bytes.size()};
}

Batch smallBatch() {
  Batch batch;
  batch.before.push_back({MessageKind::kPost, 1, 8, ~uint64_t{0}});
  addPut(batch, 2, size_t{1} << 40, "one");
  addPut(batch, 3, 0, "");
  addPut(batch, 4095, 5, "three");
  batch.after.push_back({MessageKind::kSignal, 4095, (uint64_t{1} << 48) - 8, 3});
  return batch;
}

TEST_CASE("a flight comes out as it went in") {
  const Batch batch = smallBatch();
  FlightHeader header;
  const std::vector<std::byte> bytes = packFlight(batch, header);
  const auto flight = unpackFlight(header, bytes);
  REQUIRE(flight.ok());
  REQUIRE(flight->messages.size() == 2);
  CHECK(flight->messages[0] == batch.before[0]);
  CHECK(flight->messages[1] == batch.after[0]);
  REQUIRE(flight->puts.size() == 3);
  CHECK(flight->puts[0].offset == size_t{1} << 40);
  CHECK(textOf(flight->puts[0]) == "one");
  CHECK(textOf(flight->puts[1]).empty());
  CHECK(flight->puts[2].handle == 4095);
  CHECK(textOf(flight->puts[2]) == "three");
}

TEST_CASE("a flight that is cut or too long is an error, wherever it ends") {
  FlightHeader header;
  std::vector<std::byte> bytes = packFlight(smallBatch(), header);
  for (size_t length = 0; length < bytes.size(); ++length) {
    INFO(length);
    CHECK_FALSE(unpackFlight(header, std::span(bytes).first(length)).ok());
  }
  bytes.push_back({});
  CHECK(unpackFlight(header, bytes).error().message == "1 bytes that belong to no put");
}

TEST_CASE("counts and lengths that no flight has are errors") {
  FlightHeader header;
  const std::vector<std::byte> bytes = packFlight(smallBatch(), header);
  for (uint32_t FlightHeader::* const count : {&FlightHeader::messages, &FlightHeader::puts}) {
    FlightHeader wrong = header;
    wrong.*count = UINT32_MAX;
    CHECK_THAT(unpackFlight(wrong, bytes).error().message, Catch::Matchers::Contains("expected at least"));
  }
  // the length of the first put: behind two messages, an offset and a handle
  std::vector<std::byte> changed = bytes;
  std::fill_n(changed.begin() + 2 * 24 + 12, 4, std::byte{0xff});
  CHECK(unpackFlight(header, changed).error().message == "put 0 of 3 has 4294967295 bytes, but 8 are left");
}

}  // namespace
}  // namespace sluice::ucx
