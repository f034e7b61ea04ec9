// Feeds a fuzz target files and damaged copies of them: --damaged=N FILE...
//
// The damage depends on the file alone, so that a failure can be repeated.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Input = std::vector<uint8_t>;
using Random = std::mt19937;

size_t place(const Input& input, Random& random) { return random() % (input.size() + 1); }

void changeByte(Input& input, Random& random) {
  static constexpr uint8_t kValues[] = {0, 1, 2, '0', '9', '"', '-', ' ', '\n', 0x7f, 0x80, 0xff};
  if (input.empty()) return;
  input[random() % input.size()] =
      random() % 2 ? static_cast<uint8_t>(random()) : kValues[random() % std::size(kValues)];
}

void cutOut(Input& input, Random& random) {
  const size_t begin = place(input, random);
  const size_t length = std::min<size_t>(input.size() - begin, random() % 40);
  input.erase(input.begin() + static_cast<std::ptrdiff_t>(begin),
              input.begin() + static_cast<std::ptrdiff_t>(begin + length));
}

void repeat(Input& input, Random& random) {
  const size_t begin = place(input, random);
  const size_t length = std::min<size_t>(input.size() - begin, random() % 40);
  const Input part(input.begin() + static_cast<std::ptrdiff_t>(begin),
                   input.begin() + static_cast<std::ptrdiff_t>(begin + length));
  input.insert(input.begin() + static_cast<std::ptrdiff_t>(place(input, random)), part.begin(), part.end());
}

void damage(Input& input, Random& random) {
  for (uint32_t n = 1 + random() % 3; n > 0; --n) {
    const uint32_t kind = random() % 16;
    if (kind < 12)
      changeByte(input, random);
    else if (kind < 14)
      cutOut(input, random);
    else if (kind < 15)
      repeat(input, random);
    else
      input.resize(place(input, random));
  }
}

void feed(const Input& input) {
  // a copy of its own, so that a read past its end is seen
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

int replay(const std::string& path, int damaged) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    return 1;
  }
  const Input good{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);  // it is the last line if the target aborts
  feed(good);
  Random random(static_cast<uint32_t>(good.size()));
  for (int copy = 0; copy < damaged; ++copy) {
    Input input = good;
    damage(input, random);
    feed(input);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kOption = "--damaged=";
  int damaged = 0, files = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kOption)) {
      std::from_chars(argument.data() + kOption.size(), argument.data() + argument.size(), damaged);
      continue;
    }
    if (replay(argv[i], damaged) != 0) return 1;
    ++files;
  }
  std::printf("%d inputs and %d damaged copies\n", files, files * damaged);
  return files > 0 ? 0 : 1;
}
