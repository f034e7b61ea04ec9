// FlightLength: how many bytes of puts a link sends before it waits for their arrival.
//
// Between two flights a link is idle for one or two round trips, so flights must not be too short; the
// signals of a flight take effect only at its end, so flights must not be too long. A value type; one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::mpi {

class FlightLength {
 public:
  static constexpr int64_t kShort = 2'000'000, kLong = 8'000'000;  // ns
  static constexpr size_t kLeastBytes = size_t{128} << 10, kMaxBytes = size_t{8} << 20;

  explicit FlightLength(size_t bytes) : bytes_(bytes) {}

  size_t bytes() const { return bytes_; }

  // Records that a flight of `bytes` took this long. Only full flights measure the network.
  void took(size_t bytes, int64_t nanoseconds) {
    if (bytes < bytes_) return;
    if (nanoseconds < kShort && bytes_ < kMaxBytes) bytes_ *= 2;
    if (nanoseconds > kLong && bytes_ > kLeastBytes) bytes_ /= 2;
  }

 private:
  size_t bytes_;
};

}  // namespace sluice::mpi
