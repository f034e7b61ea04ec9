#include "runtime/comm/transport.h"

#include <fmt/format.h>

namespace sluice {

std::string stoppedRanks(const Transport& transport) {
  std::string text;
  for (int rank = 0; rank < transport.size(); ++rank)
    if (transport.isStopped(rank)) text += fmt::format("; rank {} is stopped", rank);
  return text;
}

}  // namespace sluice
