#include "runtime/comm/mpi/flight_length.h"

#include <catch2/catch.hpp>

namespace sluice::mpi {
namespace {

constexpr size_t kStart = size_t{512} << 10;
constexpr int64_t kRight = (FlightLength::kShort + FlightLength::kLong) / 2;

// The length that flights over a network reach and keep, if a round trip takes `round` ns and a byte takes
// `byte` ns.
size_t settled(size_t start, double round, double byte) {
  FlightLength length(start);
  for (int flight = 0; flight < 20; ++flight)
    length.took(length.bytes(), static_cast<int64_t>(round + byte * static_cast<double>(length.bytes())));
  return length.bytes();
}

TEST_CASE("a flight that was too short makes the next one longer, one that was too long shorter") {
  FlightLength length(kStart);
  length.took(kStart, kRight);
  CHECK(length.bytes() == kStart);
  length.took(kStart, FlightLength::kShort - 1);
  CHECK(length.bytes() == 2 * kStart);
  length.took(2 * kStart, FlightLength::kLong + 1);
  CHECK(length.bytes() == kStart);
  length.took(kStart, FlightLength::kShort);
  length.took(kStart, FlightLength::kLong);
  CHECK(length.bytes() == kStart);
}

TEST_CASE("a flight that was not full changes nothing") {
  FlightLength length(kStart);
  length.took(kStart - 1, 0);
  length.took(0, FlightLength::kLong + 1);
  CHECK(length.bytes() == kStart);
  length.took(kStart + 1, 0);  // the last put went beyond it
  CHECK(length.bytes() == 2 * kStart);
}

TEST_CASE("flights get neither shorter nor longer than the limits, whatever the network does") {
  CHECK(settled(kStart, 50e6, 0) == FlightLength::kLeastBytes);
  CHECK(settled(kStart, 0, 1e6) == FlightLength::kLeastBytes);
  CHECK(settled(kStart, 0, 0) == FlightLength::kMaxBytes);
}

TEST_CASE("flights settle at the length that takes 2 to 8 ms") {
  for (double mbit : {210., 400., 640., 1000., 2500., 10000.})
    for (size_t start : {kStart, FlightLength::kLeastBytes, FlightLength::kMaxBytes}) {
      CAPTURE(mbit, start);
      const double byte = 8e3 / mbit;  // ns
      const double took = 300e3 + byte * static_cast<double>(settled(start, 300e3, byte));
      CHECK(took >= FlightLength::kShort);
      CHECK(took <= FlightLength::kLong);
    }
}

}  // namespace
}  // namespace sluice::mpi
