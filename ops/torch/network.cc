#include "ops/torch/network.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "ops/torch/errors.h"

namespace sluice {
namespace {

std::string decodeDigits(const std::string& digits) {
  std::string bytes(digits.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint8_t byte = 0;
    const char* const end = digits.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, byte, 16).ptr != end) return {};
    bytes[i] = static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace

Network::Network() : endpoint_(valueOrThrow(openUcx())) {}

std::string Network::address() const {
  std::string digits;
  for (const char byte : endpoint_->address()) digits += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return digits;
}

c10::intrusive_ptr<Ranks> Network::join(const std::string& job, int64_t rank,
                                        const std::vector<std::string>& addresses,
                                        const std::vector<std::string>& machines, int64_t threads,
                                        double timeoutSeconds) {
  Ranks::check(rank, static_cast<int64_t>(addresses.size()), threads, timeoutSeconds);
  if (machines.size() != addresses.size())
    throwValue(fmt::format("{} addresses, but {} machines", addresses.size(), machines.size()));
  UcxJob ucx{job, static_cast<int>(rank), {}, timeoutSeconds};
  for (size_t i = 0; i < addresses.size(); ++i) {
    ucx.peers.push_back({decodeDigits(addresses[i]), machines[i]});
    if (ucx.peers.back().address.empty())
      throwValue(fmt::format("address {} is not one of a Network: '{}'", i, addresses[i]));
  }
  return c10::make_intrusive<Ranks>(valueOrThrow(joinUcx(*endpoint_, ucx)), threads, timeoutSeconds);
}

}  // namespace sluice
