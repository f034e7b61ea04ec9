#include "runtime/workers/core_claims.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace sluice {

CoreClaims& CoreClaims::ofMachine() {
  // never destroyed, because workers of static objects may still release units
  static CoreClaims& claims = *new CoreClaims("sluice");
  return claims;
}

bool CoreClaims::claim(int unit) {
  if (claims_.contains(unit)) return true;
  FileDescriptor made(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (made) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // a leading zero byte makes the name abstract
    const std::string name = fmt::format("{}.unit.{}", name_, unit);
    const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), bytes);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    if (bind(made.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      if (errno == EADDRINUSE) return false;
      made.reset();  // no such sockets here: assume that there are no other processes
    }
  }
  claims_[unit] = {std::move(made), 0};
  return true;
}

int CoreClaims::take(std::span<const int> units) {
  std::lock_guard lock(mutex_);
  const auto usersOf = [&](int unit) {
    const auto found = claims_.find(unit);
    return found == claims_.end() ? 0 : found->second.users;
  };
  std::vector<int> order(units.begin(), units.end());
  std::ranges::stable_sort(order, {}, usersOf);
  for (const int unit : order) {
    if (!claim(unit)) continue;
    ++claims_[unit].users;
    return unit;
  }
  return -1;
}

void CoreClaims::release(int unit) {
  std::lock_guard lock(mutex_);
  const auto found = claims_.find(unit);
  if (found == claims_.end() || --found->second.users > 0) return;
  claims_.erase(found);
}

}  // namespace sluice
