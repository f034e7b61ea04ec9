// Flight: what goes to another rank as one active message: a batch of puts, and the messages that may be read
// once these have arrived. Its number orders the messages of flights, which may arrive in any order.
//
// Value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/network/outbox.h"

namespace sluice::ucx {

// Goes with the bytes of the flight. Both machines have the same byte order: x86-64.
struct FlightHeader {
  uint64_t number = 0;  // from 1; 0: a rank that joins, without bytes
  uint32_t source = 0;
  uint32_t messages = 0;
  uint32_t puts = 0;
  uint32_t reserved = 0;
};

// The puts and messages of one flight have at most this many bytes together.
inline constexpr size_t kMaxFlightBytes = size_t{1} << 20;
// As the handle of a put: the text of an abort.
inline constexpr uint32_t kText = UINT32_MAX;

struct ArrivedPut {
  uint32_t handle = 0;
  uint64_t offset = 0;
  std::span<const std::byte> bytes;  // of the flight
};

struct ArrivedFlight {
  std::vector<ArrivedPut> puts;
  std::vector<network::Message> messages;
};

// Sets the counts of the header.
std::vector<std::byte> packFlight(const network::Batch& batch, FlightHeader& header);

// Error: the bytes are not what the header says.
Expected<ArrivedFlight> unpackFlight(const FlightHeader& header, std::span<const std::byte> bytes);

}  // namespace sluice::ucx
