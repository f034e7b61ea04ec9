// Runs the kernel of chained products, with one of the mistakes that can be planted or with none, on the
// model of the hardware, with a case per seed.
//
// usage: wrong|right SEEDS chain|weight_grad|row_work|pitch MISTAKE|none, or skip
// With "wrong" it passes if something is found wrong with some seed: by the model, by the kernel's own
// report, by a wrong value, or by ThreadSanitizer where the kernel is compiled for it. With "right" if
// nothing is.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/gpu/chain_case.h"
#include "tests/gpu/gated_case.h"
#include "tests/gpu/pitch_case.h"
#include "tests/gpu/planted.h"
#include "tests/gpu/row_work_case.h"
#include "tests/gpu/run_on_model.h"
#include "tests/gpu/weight_grad_case.h"

namespace {

bool isRight = false;

std::string firstWrong(std::string_view name, int blocks, uint64_t seed) {
  if (name == "weight_grad") return sluice::gpu::runOnModel(sluice::gpu::WeightGradCase(seed), blocks, seed);
  if (name == "row_work") return sluice::gpu::runOnModel(sluice::gpu::RowWorkCase(seed), blocks, seed);
  if (name == "pitch") return sluice::gpu::PitchCase(seed).run(blocks, seed);
  const std::string wrong = sluice::gpu::runOnModel(sluice::gpu::ChainCase(seed), blocks, seed);
  return wrong.empty() ? sluice::gpu::runOnModel(sluice::gpu::GatedCase(seed), blocks, seed) : wrong;
}

// False: there is none of that name.
bool plant(std::string_view mistake) {
  if (mistake == "none") return true;
  const auto* const found = std::ranges::find(sluice::gpu::kMistakes, mistake);
  sluice::gpu::plantedMistake = static_cast<int>(found - sluice::gpu::kMistakes);
  return found != std::end(sluice::gpu::kMistakes);
}

}  // namespace

// ThreadSanitizer calls it after its first report.
extern "C" void __tsan_on_report(void* /*report*/) {
  static constexpr std::string_view kFound = "found by ThreadSanitizer\n";
  const bool isWritten = write(STDOUT_FILENO, kFound.data(), kFound.size()) > 0;
  _exit(isRight || !isWritten ? 1 : 0);
}

int main(int argc, char** argv) {
  if (argc == 2 && argv[1] == std::string_view("skip")) {
    fmt::print("SKIP: AddressSanitizer leaves no room for ThreadSanitizer\n");
    return 0;
  }
  if (argc != 5 || !plant(argv[4])) {
    fmt::print(
        stderr,
        "mutant_main: error: found {} arguments, expected wrong or right, a number of seeds, a case, and "
        "a mistake of mutants.py or none\n",
        argc - 1);
    return 2;
  }
  isRight = argv[1] == std::string_view("right");
  const int seeds = atoi(argv[2]);
  for (int seed = 1; seed <= seeds; ++seed) {
    const int blocks = 1 + seed % 3;
    const std::string wrong = firstWrong(argv[3], blocks, static_cast<uint64_t>(seed));
    if (wrong.empty()) continue;
    fmt::print("seed {}, {} blocks: found by {}\n", seed, blocks, wrong);
    return isRight ? 1 : 0;
  }
  fmt::print("nothing was found with {} seeds\n", seeds);
  return isRight ? 0 : 1;
}
