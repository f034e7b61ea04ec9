#include "tools/launch/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

namespace sluice::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Scripts of ranks, and the folder where they record what they saw.
class Scene {
 public:
  Scene() {
    const char* base = std::getenv("TEST_TMPDIR");
    std::string name = std::string(base ? base : "/tmp") + "/launch-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Scene() { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ / name; }
  std::string text(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits until a file is there and not empty.
  std::string awaitText(const std::string& name) const {
    for (int i = 0; i < 2000 && text(name).empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return text(name);
  }
  // Each rank runs the script in this folder.
  Launch launch(const std::string& script, int ranks) const {
    return {"/bin/bash", {"bash", "-c", "cd " + folder_.string() + "; " + script}, ranks, 0.3};
  }

 private:
  std::filesystem::path folder_;
};

// The launch with its standard error in a file of the scene.
Expected<int> run(const Scene& scene, const Launch& launch) {
  const int kept = ::dup(STDERR_FILENO);
  const int file = ::open(scene.file("errors").c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(file, STDERR_FILENO);
  Expected<int> result = launchRanks(launch);
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  ::close(file);
  return result;
}

bool isAlive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return (file >> number >> name >> state) && state != "Z";
}

// Whether all processes whose ids are in the files end within 2 s.
bool allEnd(const Scene& scene, int ranks) {
  for (int i = 0; i < 400; ++i) {
    bool any = false;
    for (int rank = 0; rank < ranks; ++rank)
      any = any || isAlive(std::atoi(scene.text("pid" + std::to_string(rank)).c_str()));
    if (!any) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST_CASE("every rank knows its number, the size and a job that no other launch has") {
  const Scene scene;
  const Launch launch = scene.launch(
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE > r$RANK; "
      "echo $SLUICE_JOB >> jobs",
      3);
  ::setenv("RANK", "7", 1);  // is not passed on
  const Expected<int> first = run(scene, launch), second = run(scene, launch);
  ::unsetenv("RANK");
  CHECK(*first == 0);
  CHECK(*second == 0);
  CHECK(scene.text("r0") == "0/3 0/3\n");
  CHECK(scene.text("r2") == "2/3 2/3\n");
  std::ifstream jobs(scene.file("jobs"));
  std::vector<std::string> names(std::istream_iterator<std::string>(jobs), {});
  REQUIRE(names.size() == 6);
  CHECK(names[0] == names[2]);
  CHECK(names[3] == names[5]);
  CHECK(names[0] != names[3]);
  CHECK(names[0].size() >= 32);
}

TEST_CASE("what ranks write to their standard error is shown with their number") {
  const Scene scene;
  CHECK(*run(scene, scene.launch("[ $RANK = 1 ] && echo a word >&2; exit 0", 2)) == 0);
  CHECK(scene.text("errors") == "[rank 1] a word\n");
}

TEST_CASE("a rank that fails and says why gives its exit status, and the others end") {
  const Scene scene;
  const auto begin = Clock::now();
  CHECK(run(scene,
            scene.launch("echo $$ > pid$RANK; [ $RANK = 1 ] && { echo why >&2; exit 3; }; exec sleep 60", 2))
            .error()
            .message == "rank 0 did not end within 0.3 s after rank 1 had failed, and was killed");
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  CHECK(allEnd(scene, 2));
  CHECK(*run(scene, scene.launch("[ $RANK = 1 ] && { echo why >&2; exit 3; }; exit 0", 2)) == 3);
}

TEST_CASE("a rank that fails without a word is named") {
  const Scene scene;
  CHECK(run(scene, scene.launch("[ $RANK = 2 ] && exit 5; exit 0", 3)).error().message ==
        "rank 2 ended with exit status 5");
}

TEST_CASE("a rank that was killed is named as the cause, though others fail too") {
  const Scene scene;
  const std::string message =
      run(scene, scene.launch("[ $RANK = 1 ] && kill -9 $$; sleep 0.1; echo lost >&2; exit 1", 3))
          .error()
          .message;
  CHECK(message.find("rank 1 was killed by signal 9") == 0);
  CHECK(scene.text("errors").find("[rank 0] lost\n") != std::string::npos);
}

TEST_CASE("ranks that stopped, or refuse to end, end with the others") {
  const Scene scene;
  const Expected<int> result = run(scene, scene.launch("echo $$ > pid$RANK; case $RANK in 0) exit 4;; "
                                                       "1) trap '' TERM; while :; do sleep 1; done;; "
                                                       "2) kill -STOP $$;; esac",
                                                       3));
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message.find("after rank 0 had failed") != std::string::npos);
  CHECK(allEnd(scene, 3));
}

TEST_CASE("ranks that are all stopped are named and ended at the limit, those that have ended left out") {
  const Scene scene;
  Launch launch = scene.launch("echo $$ > pid$RANK; [ $RANK = 1 ] && exit 0; kill -STOP $$; exit 0", 3);
  launch.stoppedSeconds = 1;
  const auto begin = Clock::now();
  const Expected<int> result = run(scene, launch);
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message ==
        "waited 1 s for ranks that are all stopped: rank 0 (SIGSTOP), rank 2 (SIGSTOP)");
  CHECK(Clock::now() - begin >= std::chrono::seconds(1));
  CHECK(allEnd(scene, 3));
}

TEST_CASE("ranks that are stopped for less than the limit, or not all of them, go on") {
  const Scene scene;
  // rank 0 wakes the other, which is stopped for longer than the limit, but not alone
  Launch launch = scene.launch(
      "echo $$ > pid$RANK; if [ $RANK = 1 ]; then kill -STOP $$; exit 0; fi; sleep 2; "
      "kill -CONT $(cat pid1); exit 0",
      2);
  launch.stoppedSeconds = 1;
  CHECK(*run(scene, launch) == 0);
  // all of them, time and again
  launch = scene.launch(
      "echo $$ > pid$RANK; (while sleep 0.6; do kill -CONT $$ || exit; done) 2> /dev/null & "
      "for i in 1 2 3; do kill -STOP $$; sleep 0.4; done; exit 0",
      2);
  launch.stoppedSeconds = 1.5;
  CHECK(*run(scene, launch) == 0);
}

TEST_CASE("a launcher that is stopped with its ranks for longer than the limit goes on with them") {
  const Scene scene;
  const pid_t child = ::fork();
  if (child == 0) {
    Launch launch = scene.launch("echo $$ > pid$RANK; until [ -e go ]; do sleep 0.05; done; exit 0", 2);
    launch.stoppedSeconds = 1.5;
    const Expected<int> result = launchRanks(launch);
    ::_exit(result ? *result : 1);
  }
  REQUIRE_FALSE(scene.awaitText("pid0").empty());
  REQUIRE_FALSE(scene.awaitText("pid1").empty());
  const std::vector<pid_t> all = {std::atoi(scene.text("pid0").c_str()),
                                  std::atoi(scene.text("pid1").c_str()), child};
  for (const pid_t each : all) {
    // the launcher comes last, when it has seen the others stop
    if (each == child) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ::kill(each, SIGSTOP);
  }
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ::kill(child, SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (const pid_t each : all) ::kill(each, SIGCONT);
  std::ofstream(scene.file("go")) << "go";
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a program that cannot be started is said once") {
  const Scene scene;
  CHECK(*run(scene, {"/no/such/program", {"x"}, 2, 0.3}) == 127);
  const std::string errors = scene.text("errors");
  const std::string line = "sluice: error: cannot start the program of a rank\n";
  CHECK(errors.find(line) != std::string::npos);
  CHECK(errors.find(line) == errors.rfind(line));
}

// A child that launches, until it gets the signal; gives its wait status.
int statusAfter(const Scene& scene, int signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(signal, SIG_DFL);  // a test in the background of a shell has some ignored
    const Expected<int> result = launchRanks(scene.launch("echo $$ > pid$RANK; exec sleep 60", 2));
    ::_exit(result ? *result : 1);
  }
  CHECK_FALSE(scene.awaitText("pid0").empty());
  CHECK_FALSE(scene.awaitText("pid1").empty());
  ::kill(child, signal);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST_CASE("a launcher that is told to end ends its ranks, and says by which signal") {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Scene scene;
    const int status = statusAfter(scene, signal);
    CHECK(WEXITSTATUS(status) == 128 + signal);
    CHECK(allEnd(scene, 2));
  }
}

TEST_CASE("a launcher that is killed takes its ranks along") {
  const Scene scene;
  CHECK(WIFSIGNALED(statusAfter(scene, SIGKILL)));
  CHECK(allEnd(scene, 2));
}

}  // namespace
}  // namespace sluice::tools
