// Files in the folder that Bazel gives to a test.
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>

namespace sluice {

inline std::string temporary(const std::string& name) {
  return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
}

// The path of the file.
inline std::string writeFile(const std::string& name, const std::string& content) {
  std::ofstream(temporary(name)) << content;
  return temporary(name);
}

}  // namespace sluice
