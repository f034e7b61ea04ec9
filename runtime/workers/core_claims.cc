#include "runtime/workers/core_claims.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace sluice {

CoreClaims& CoreClaims::ofMachine() {
  // never destroyed: workers of static objects may still release units
  static CoreClaims& claims = *new CoreClaims("sluice");
  return claims;
}

CoreClaims::~CoreClaims() {
  for (const auto& [unit, claim] : claims_)
    if (claim.socket >= 0) close(claim.socket);
}

bool CoreClaims::claim(int unit) {
  if (claims_.contains(unit)) return true;
  const int made = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (made >= 0) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // a name that begins with 0 is abstract
    const std::string name = fmt::format("{}.unit.{}", name_, unit);
    const size_t bytes = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), bytes);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    if (bind(made, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      const bool others = errno == EADDRINUSE;
      close(made);
      if (others) return false;
      claims_[unit] = {};  // no such sockets here: as if there were no other processes
      return true;
    }
  }
  claims_[unit] = {made, 0};
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
  if (found->second.socket >= 0) close(found->second.socket);
  claims_.erase(found);
}

}  // namespace sluice
