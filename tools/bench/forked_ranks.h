// Processes that are forked from this one, one a rank, and what they and it say to each other.
//
// Resource types, one owner, one thread; this process must not have other threads when it forks. A rank ends
// with its ForkedRanks, and where this process ends without that.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/expected.h"

namespace sluice::tools {

// A rank's side.
class RankSocket {
 public:
  explicit RankSocket(int socket) : socket_(socket) {}
  // False: nobody listens any more.
  bool answer(std::string_view bytes);
  // Waits for the next request; false: there are no more.
  bool next();

 private:
  int socket_;
};

class ForkedRanks {
 public:
  // What a rank does until it is asked for nothing more; an error is its last answer.
  using Body = std::function<Status(int rank, RankSocket& socket)>;

  ForkedRanks() = default;
  ~ForkedRanks();
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  // Errors: the system has no process or socket.
  Status start(int ranks, const Body& body);
  // One request to each rank.
  void ask();
  // One answer of each rank: that of rank 0, or the first error. Errors also: a rank that ended without one.
  Expected<std::string> answers();

 private:
  Status fork(int rank, const Body& body);
  Expected<std::string> receive(size_t rank);

  std::vector<int> sockets_;  // by rank
  std::vector<pid_t> children_;
};

}  // namespace sluice::tools
