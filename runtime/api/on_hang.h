// What a context does when a step fails that ranks had begun: the words of --on-hang and SLUICE_ON_HANG.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/expected.h"
#include "runtime/comm/transport.h"

namespace sluice {

// The file in "trace" (hang-{rank}.json) or "trace=FILE". Error: other words.
Expected<std::string> parseOnHang(std::string_view text);

// The file of this rank: `pattern` with "{rank}" replaced by the rank; by the variable RANK, if it is set, as
// by torchrun, and ranks are processes, because several groups of ranks may belong to a job. Empty if
// `pattern` is. Error: more than one rank and no "{rank}".
Expected<std::string> makeHangFile(const std::string& pattern, const Transport& transport);

}  // namespace sluice
