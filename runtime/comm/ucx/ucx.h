// Ranks as processes of one machine or several that have another way to exchange a few bytes (PyTorch: a
// process group). Ranks of one machine reach each other through shared memory, others through UCX.
//
// The library of UCX is loaded when it is first needed, so programs that contain this run without it.
// Programs built without the headers of UCX report that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

// This process in the network, before it knows the other ranks. Resource type; one thread at a time.
class UcxEndpoint {
 public:
  virtual ~UcxEndpoint() = default;
  // Any bytes: what other ranks need to reach this process.
  virtual const std::string& address() const = 0;
};

// Errors: the program was built without UCX; its library is missing, or finds no network.
Expected<std::unique_ptr<UcxEndpoint>> openUcx();

struct UcxPeer {
  std::string address;  // UcxEndpoint::address()
  // Equal for ranks that can share memory: the ranks of one machine and one network namespace (a socket
  // without a file has its name in that).
  std::string machine;
};

struct UcxJob {
  std::string name;            // of 1 to 64 bytes; the same at all ranks of this job, and of no other job
  int rank = 0;                // peers[rank] is this process
  std::vector<UcxPeer> peers;  // all ranks
  double timeoutSeconds = 30;  // for all ranks to join
};

// Collective; once per endpoint. Errors: a damaged address; UCX cannot reach a rank, or one does not answer
// within the time limit; errors of joinSharedMemory(). After an error the endpoint keeps its connections
// until it is destroyed: that must wait for the other ranks to have returned, because UCX 1.18 ends processes
// whose peers disconnect while they connect.
Expected<std::unique_ptr<Transport>> joinUcx(UcxEndpoint& endpoint, const UcxJob& job);

}  // namespace sluice
