#include "runtime/base/pending_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/child_process.h"

namespace sluice {
namespace {

class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    std::string name = std::string(base ? base : "/tmp") + "/pending-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ / name; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Status writeText(PendingFile& file, const std::string& text) {
  return file.write(std::as_bytes(std::span(text)));
}

TEST_CASE("a new file and one in the place of another have what was written, and nothing else is left") {
  const Folder folder;
  for (const char* text : {"first", "second"}) {
    Expected<PendingFile> file = PendingFile::create(folder.file("a"));
    REQUIRE(file.ok());
    REQUIRE(writeText(*file, text).ok());
    REQUIRE(file->finish().ok());
    REQUIRE(file->commit().ok());
    CHECK(contentOf(folder.file("a")) == text);
    CHECK(folder.files() == 1);
  }
}

TEST_CASE("without a commit the old file stays and nothing else is left") {
  const Folder folder;
  std::ofstream(folder.file("a")) << "old";
  {
    Expected<PendingFile> file = PendingFile::create(folder.file("a"));
    REQUIRE(writeText(*file, "new").ok());
    REQUIRE(file->finish().ok());
    const PendingFile moved = std::move(*file);
  }
  CHECK(contentOf(folder.file("a")) == "old");
  CHECK(folder.files() == 1);
}

// Runs `body` in a child and returns how it ended.
int statusOfChild(const std::function<int()>& body) {
  const Expected<pid_t> child = startChild(body);
  REQUIRE(child);
  return awaitChild(*child);
}

TEST_CASE("a process that is killed while it writes leaves nothing") {
  const Folder folder;
  const int status = statusOfChild([&] {
    Expected<PendingFile> file = PendingFile::create(folder.file("a"));
    if (file && writeText(*file, "half") && file->finish()) ::raise(SIGKILL);
    return 1;
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(folder.files() == 0);
}

TEST_CASE("files with names are removed by the signals that end a process, and their targets stay") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const Folder folder;
    for (int i = 0; i < 50; ++i) std::ofstream(folder.file(std::to_string(i))) << "old";
    const int status = statusOfChild([&] {
      removeNamedFilesOnSignals();
      std::vector<PendingFile> files;
      for (int i = 0; i < 50; ++i) {
        auto file = PendingFile::create(folder.file(std::to_string(i)), PendingName::kBeside);
        if (!file || !writeText(*file, "new")) return 1;
        files.push_back(std::move(*file));
      }
      if (!files[3].commit()) return 1;
      if (folder.files() != 99) return 1;
      ::raise(signal);
      return 0;
    });
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK(folder.files() == 50);
    for (int i = 0; i < 50; ++i) CHECK(contentOf(folder.file(std::to_string(i))) == (i == 3 ? "new" : "old"));
  }
}

TEST_CASE("a signal that was ignored before stays ignored") {
  CHECK(statusOfChild([] {
          ::signal(SIGHUP, SIG_IGN);
          removeNamedFilesOnSignals();
          ::raise(SIGHUP);
          return 0;
        }) == 0);
}

TEST_CASE("a file with a name becomes the target, or goes where there is no commit") {
  const Folder folder;
  std::ofstream(folder.file("a")) << "old";
  {
    Expected<PendingFile> file = PendingFile::create(folder.file("a"), PendingName::kBeside);
    REQUIRE(writeText(*file, "lost").ok());
    CHECK(folder.files() == 2);
  }
  CHECK(contentOf(folder.file("a")) == "old");
  Expected<PendingFile> file = PendingFile::create(folder.file("a"), PendingName::kBeside);
  REQUIRE(writeText(*file, "new").ok());
  REQUIRE(file->commit().ok());
  CHECK(contentOf(folder.file("a")) == "new");
  CHECK(folder.files() == 1);
}

TEST_CASE("a limit on the size of files is an error, and nothing is left") {
  for (const PendingName name : {PendingName::kNone, PendingName::kBeside}) {
    const Folder folder;
    CHECK(statusOfChild([&] {
            removeNamedFilesOnSignals();
            const rlimit limit{4, 4};
            if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
            Expected<PendingFile> file = PendingFile::create(folder.file("a"), name);
            const Status written = writeText(*file, "more than four bytes");
            return written || written.error().message.find("File too large") == std::string::npos ? 2 : 0;
          }) == 0);
    CHECK(folder.files() == 0);
  }
}

TEST_CASE("what cannot be written is known at once") {
  const Folder folder;
  CHECK_FALSE(PendingFile::create("").ok());
  CHECK(PendingFile::create(folder.file("")).error().message.find("found a folder") != std::string::npos);
  CHECK(PendingFile::create(folder.file("no/a")).error().message.find("No such file") != std::string::npos);
  CHECK(PendingFile::create(folder.file(std::string(300, 'a'))).error().message.find("too long") !=
        std::string::npos);
  CHECK(folder.files() == 0);
}

}  // namespace
}  // namespace sluice
