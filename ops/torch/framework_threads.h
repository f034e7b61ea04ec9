// The threads on which PyTorch runs its own operators, as a team that steps of layers may use.
#pragma once

namespace sluice {

class Team;

// The OpenMP threads of whichever thread uses it; lives as long as the process. A thread has as many as
// at::get_num_threads(), but none inside a parallel region or in a forked child. Null: PyTorch was built
// without OpenMP, or its OpenMP library is unknown.
Team* frameworkThreads();

}  // namespace sluice
