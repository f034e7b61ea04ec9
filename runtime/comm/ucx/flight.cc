#include "runtime/comm/ucx/flight.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice::ucx {
namespace {

using network::Batch;
using network::Message;
using network::MessageKind;

struct PackedMessage {
  uint32_t kind, handle;
  uint64_t offset, value;
};

struct PackedPut {
  uint64_t offset;
  uint32_t handle, bytes;
};

}  // namespace

std::vector<std::byte> packFlight(const Batch& batch, FlightHeader& header) {
  header.messages = static_cast<uint32_t>(batch.before.size() + batch.after.size());
  header.puts = static_cast<uint32_t>(batch.puts.size());
  size_t total = header.messages * sizeof(PackedMessage) + header.puts * sizeof(PackedPut);
  for (const network::PutOrder& put : batch.puts) total += put.bytes;
  std::vector<std::byte> bytes(total);
  std::byte* to = bytes.data();
  const auto append = [&to](const void* from, size_t count) {
    if (count > 0) std::memcpy(to, from, count);
    to += count;
  };
  for (const auto* messages : {&batch.before, &batch.after})
    for (const Message& message : *messages) {
      const PackedMessage packed{static_cast<uint32_t>(message.kind), message.handle, message.offset,
                                 message.value};
      append(&packed, sizeof(packed));
    }
  for (const network::PutOrder& put : batch.puts) {
    const PackedPut packed{put.offset, put.handle, static_cast<uint32_t>(put.bytes)};
    append(&packed, sizeof(packed));
  }
  for (const network::PutOrder& put : batch.puts) append(put.data.get(), put.bytes);
  return bytes;
}

Expected<ArrivedFlight> unpackFlight(const FlightHeader& header, std::span<const std::byte> bytes) {
  const uint64_t fixed =
      uint64_t{header.messages} * sizeof(PackedMessage) + uint64_t{header.puts} * sizeof(PackedPut);
  if (fixed > bytes.size())
    return Error{fmt::format("{} bytes for {} messages and {} puts, expected at least {}", bytes.size(),
                             header.messages, header.puts, fixed)};
  const std::byte* from = bytes.data();
  const auto next = [&from](auto& packed) {
    std::memcpy(&packed, from, sizeof(packed));
    from += sizeof(packed);
  };
  ArrivedFlight flight;
  for (uint32_t i = 0; i < header.messages; ++i) {
    PackedMessage packed;
    next(packed);
    flight.messages.push_back(
        {static_cast<MessageKind>(packed.kind), packed.handle, packed.offset, packed.value});
  }
  std::span<const std::byte> data = bytes.subspan(fixed);
  for (uint32_t i = 0; i < header.puts; ++i) {
    PackedPut packed;
    next(packed);
    if (packed.bytes > data.size())
      return Error{fmt::format("put {} of {} has {} bytes, but {} are left", i, header.puts, packed.bytes,
                               data.size())};
    flight.puts.push_back({packed.handle, packed.offset, data.first(packed.bytes)});
    data = data.subspan(packed.bytes);
  }
  if (!data.empty()) return Error{fmt::format("{} bytes that belong to no put", data.size())};
  return flight;
}

}  // namespace sluice::ucx
