#include "tools/launch/rank_variables.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/hash.h"

namespace sluice::tools {
namespace {

constexpr int kMaxRanks = 1 << 20;

Expected<int> readNumber(const char* name, const char* text, int least, int most) {
  int number = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, failed] = std::from_chars(text, end, number);
  if (failed != std::errc() || stop != end || number < least || number > most)
    return Error{
        fmt::format("variable {}: found '{}', expected a number from {} to {}", name, text, least, most)};
  return number;
}

bool isSet(const char* value) { return value && *value; }

// The address without port and scope; empty if it is neither IPv4 nor IPv6.
std::string addressBytes(const sockaddr* address) {
  if (!address) return {};
  if (address->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return {reinterpret_cast<const char*>(&in), sizeof(in)};
  }
  if (address->sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return {reinterpret_cast<const char*>(&in), sizeof(in)};
  }
  return {};
}

bool isLocalAddress(const std::string& bytes) {
  if (bytes.size() == sizeof(in_addr) && bytes[0] == 127) return true;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* each = list; each; each = each->ifa_next)
    if (addressBytes(each->ifa_addr) == bytes) return true;
  return false;
}

std::string_view firstLabel(std::string_view name) { return name.substr(0, name.find('.')); }

// torchrun sets the number of its ranks on this machine.
Status checkOneMachine(const Variables& variables) {
  const char* local = variables("LOCAL_WORLD_SIZE");
  const char* all = variables("WORLD_SIZE");
  if (isSet(local) && isSet(all) && std::string_view(local) != all)
    return Error{fmt::format(
        "variable LOCAL_WORLD_SIZE: found {} of {} ranks on this machine, expected all: shared memory needs "
        "one machine, use --transport mpi",
        local, all)};
  return {};
}

// A name of at most kLongestName bytes; different names give different ones.
std::string shortened(const std::string& name) {
  constexpr size_t kLongestName = 64, kDigits = 16;
  if (name.size() <= kLongestName) return name;
  return fmt::format("{}#{:016x}", name.substr(0, kLongestName - kDigits - 1), hashContent(name));
}

}  // namespace

Variables processVariables() { return std::getenv; }

Expected<std::optional<GivenRank>> findGivenRank(const Variables& variables) {
  const char* rank = variables("RANK");
  const char* size = variables("WORLD_SIZE");
  if (!rank && !size) return std::optional<GivenRank>();
  if (!rank || !size)
    return Error{fmt::format("variable {}: found none, but {}={}, expected both or neither",
                             rank ? "WORLD_SIZE" : "RANK", rank ? "RANK" : "WORLD_SIZE", rank ? rank : size)};
  const Expected<int> ranks = readNumber("WORLD_SIZE", size, 1, kMaxRanks);
  if (!ranks) return ranks.error();
  const Expected<int> number = readNumber("RANK", rank, 0, *ranks - 1);
  if (!number) return Error{number.error().message + ", by WORLD_SIZE=" + size};
  return std::optional<GivenRank>({*number, *ranks});
}

Expected<std::string> findJobName(const Variables& variables) {
  const char* job = variables("SLUICE_JOB");
  if (isSet(job)) return shortened(job);
  const char* address = variables("MASTER_ADDR");
  const char* port = variables("MASTER_PORT");
  if (!isSet(address) || !isSet(port))
    return Error{
        "RANK and WORLD_SIZE are set, but no job: set SLUICE_JOB to a name that all ranks of this job and no "
        "other job have, or MASTER_ADDR and MASTER_PORT; or unset RANK and WORLD_SIZE and let sluice start "
        "the ranks"};
  if (Status here = checkOneMachine(variables); !here) return here.error();
  if (!isThisMachine(address))
    return Error{
        fmt::format("variable MASTER_ADDR: found '{}', which is not this machine: shared memory needs one "
                    "machine, use --transport mpi",
                    address)};
  std::string name = fmt::format("{}:{}", address, port);
  // a second attempt of torchrun must not meet the remains of the first
  for (const char* more : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    if (const char* value = variables(more); isSet(value)) name += fmt::format(":{}", value);
  return shortened(name);
}

bool isStartedByMpi(const Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    if (variables(name)) return true;
  return false;
}

bool isThisMachine(const std::string& host) {
  char self[256] = {};
  if (::gethostname(self, sizeof(self) - 1) == 0 && firstLabel(self) == firstLabel(host) && *self)
    return true;
  if (host == "localhost") return true;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (const addrinfo* each = list; each; each = each->ai_next)
    if (isLocalAddress(addressBytes(each->ai_addr))) return true;
  return false;
}

}  // namespace sluice::tools
