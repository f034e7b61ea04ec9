// FlightLength: how many bytes of puts a link sends at most before it waits until they are there.
//
// Between two flights the network has nothing of a link to do for a round trip or two, and no signal of a
// flight is heard before its end: flights are as long as the first asks, and as short as the second does.
// A value type; one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::mpi {

class FlightLength {
 public:
  static constexpr int64_t kShort = 2'000'000, kLong = 8'000'000;  // ns
  static constexpr size_t kLeastBytes = size_t{128} << 10, kMostBytes = size_t{8} << 20;

  explicit FlightLength(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }

  // A flight of so many bytes took so long. Only full ones say something of the network.
  void took(size_t bytes, int64_t nanoseconds) {
    if (bytes < bytes_) return;
    if (nanoseconds < kShort && bytes_ < kMostBytes) bytes_ *= 2;
    if (nanoseconds > kLong && bytes_ > kLeastBytes) bytes_ /= 2;
  }

 private:
  size_t bytes_;
};

}  // namespace sluice::mpi
