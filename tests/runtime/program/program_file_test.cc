#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/program/codec.h"
#include "tests/runtime/program/random_program.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

// A new directory, removed with all that is in it.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "sluice_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()));
    path_ = name;
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string errorOf(const Expected<TaskProgram>& program) {
  return program.ok() ? "" : program.error().message;
}
std::string errorOf(const Status& status) { return status.ok() ? "" : status.error().message; }

TEST_CASE("a written program is read back, and replaces the file that was there") {
  const Scratch scratch;
  const std::string path = scratch.file("p.slp");
  std::ofstream(path) << "something else";
  REQUIRE(errorOf(writeProgram(smallProgram(), path)) == "");
  const Expected<TaskProgram> program = readProgram(path);
  REQUIRE(errorOf(program) == "");
  CHECK(*program == smallProgram());
  CHECK(scratch.entries() == 1);
}

TEST_CASE("a program that cannot be written leaves no file and harms none") {
  const Scratch scratch;
  fs::create_directory(scratch.file("dir"));
  CHECK_THAT(errorOf(writeProgram(smallProgram(), scratch.file("dir"))),
             Contains("found a folder, expected a regular file"));
  CHECK_THAT(errorOf(writeProgram(smallProgram(), scratch.file("no/p.slp"))),
             Contains("no/p.slp: cannot write: No such file or directory"));
  CHECK_THAT(errorOf(writeProgram(smallProgram(), "/dev/null")),
             Contains("found a special file, expected a regular file"));
  CHECK(fs::is_character_file("/dev/null"));
  CHECK(scratch.entries() == 1);
}

TEST_CASE("a program that could not be read again is not written") {
  const Scratch scratch;
  TaskProgram program = smallProgram();
  program.topK = 65;
  CHECK_THAT(errorOf(writeProgram(program, scratch.file("p.slp"))),
             Contains("p.slp: not written: program: experts of a token is 65, expected at most 64"));
  CHECK(scratch.entries() == 0);
}

// A file system limit, as a full disk would be: the rename must not happen, and the old file stays.
TEST_CASE("a write that fails half-way keeps the old file and removes the new one") {
  if (const char* again = std::getenv("SLUICE_TEST_LIMITED_WRITE"))
    std::exit(errorOf(writeProgram(smallProgram(), again)).find("cannot write") == std::string::npos);
  const Scratch scratch;
  const std::string path = scratch.file("p.slp");
  std::ofstream(path) << "old";
  const std::string limited = "ulimit -f 0; trap '' XFSZ; exec 2>/dev/null; ";
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string command = limited + "SLUICE_TEST_LIMITED_WRITE='" + path + "' '" + self +
                              "' 'a write that fails half-way keeps the old file and removes the new one'";
  CHECK(std::system(("exec >/dev/null; " + command).c_str()) == 0);
  std::string content;
  std::ifstream(path) >> content;
  CHECK(content == "old");
  CHECK(scratch.entries() == 1);
}

TEST_CASE("what is no readable program file is refused with its path") {
  const Scratch scratch;
  CHECK_THAT(errorOf(readProgram(scratch.file("missing"))),
             Contains("missing: cannot open: No such file or directory"));
  fs::create_directory(scratch.file("dir"));
  CHECK_THAT(errorOf(readProgram(scratch.file("dir"))), Contains("dir: not a regular file"));
  REQUIRE(::mkfifo(scratch.file("pipe").c_str(), 0600) == 0);
  CHECK_THAT(errorOf(readProgram(scratch.file("pipe"))), Contains("pipe: not a regular file"));
  std::ofstream(scratch.file("empty"));
  CHECK_THAT(errorOf(readProgram(scratch.file("empty"))), Contains("empty: the file is empty"));
  std::ofstream(scratch.file("huge"));
  fs::resize_file(scratch.file("huge"), uintmax_t{3} << 30);  // sparse
  CHECK_THAT(errorOf(readProgram(scratch.file("huge"))), Contains("a program file has at most"));
}

}  // namespace
}  // namespace sluice
