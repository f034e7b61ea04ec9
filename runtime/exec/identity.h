// Identities: what each rank of a transport has loaded, compared before the first use.
//
// A board whose size depends on no program is allocated first: so ranks that loaded different programs report
// the difference instead of reading each other's memory with a different layout. Used by one thread of the
// rank at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/expected.h"
#include "runtime/comm/all_gather.h"
#include "runtime/program/verify.h"

namespace sluice {

// A fact that distinguishes programs: ("max_tokens", "512"), ("tensor x", "BF16 [T, 64]"). Zero-terminated.
struct Fact {
  std::array<char, 40> name{};
  std::array<char, 56> value{};
};

// A value type that is sent as bytes; a peer's may have any content.
struct Identity {
  uint64_t fingerprint = 0;
  uint64_t count = 0;
  std::array<Fact, 48> facts;  // as many as fit, in order
};

Identity makeIdentity(const VerifiedProgram& program);

// Example: rank 1 loaded program 'layer' with max_tokens 512, but rank 0 one with max_tokens 256. If all
// facts are equal, the difference of the fingerprints; empty if these are equal, too.
std::optional<std::string> difference(const Identity& other, int otherRank, const Identity& first,
                                      int firstRank);

class Identities {
 public:
  Identities() = default;

  // Collective, but does not wait: posts this rank's identity.
  static Expected<Identities> create(Transport& transport, const VerifiedProgram& program);

  // Compares the identities that have arrived. An error aborts the transport.
  Status compareThere() const;

  // Replaces `error`, the reason why this rank could not make its memory, by its cause if there is one:
  // another program at another rank. Aborts the transport.
  Error explain(const Error& error) const;

  // On the first call, waits for all identities and compares them. Errors are the same at all ranks, and
  // abort.
  Status await(const std::string& entryName, double timeoutSeconds);

 private:
  std::optional<std::string> findDifference(bool& isComplete) const;

  Transport* transport_ = nullptr;
  AllGather boards_;
  bool known_ = false;  // all have arrived and are equal
};

}  // namespace sluice
