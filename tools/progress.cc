#include "tools/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/threads.h"
#include "tools/command_line.h"

namespace sluice::tools {
namespace {

constexpr int64_t kQuiet = 2'000'000'000;  // nanoseconds without a line
constexpr int64_t kBetween = 200'000'000;  // at least, from one line to the next
constexpr std::string_view kErase = "\r\033[K";

// A line that wraps could not be removed.
std::string cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  const auto isContinued = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  while (most > 0 && isContinued(most)) --most;
  text.resize(most);
  return text;
}

int columnsOfTerminal() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// A terminal that is gone is no reason to end the work.
void writeOut(const std::string& bytes) {
  if (!bytes.empty()) static_cast<void>(!::write(STDERR_FILENO, bytes.data(), bytes.size()));
}

}  // namespace

void ProgressLine::set(std::string_view text) {
  std::string line = printable(text);
  std::ranges::replace_if(line, [](char each) { return each == '\n' || each == '\t'; }, ' ');
  text_ = cut(std::move(line), static_cast<size_t>(std::max(1, columns_ - 1)));
}

std::string ProgressLine::draw(int64_t now) {
  if (now - begin_ < kQuiet || text_ == shown_) return {};
  if (drawn_ != 0 && now - drawn_ < kBetween) return {};
  drawn_ = now;
  shown_ = text_;
  return fmt::format("{}{}", kErase, text_);
}

std::string ProgressLine::clear() {
  text_.clear();
  if (shown_.empty()) return {};
  shown_.clear();
  return std::string(kErase);
}

struct Progress::Terminal {
  std::mutex mutex;  // of all below, except the thread
  std::condition_variable ended;
  bool isEnded = false;
  ProgressLine line{monotonicNanoseconds(), columnsOfTerminal()};
  std::thread thread;

  bool draw() {
    const std::string bytes = line.draw(monotonicNanoseconds());
    writeOut(bytes);
    return !bytes.empty();
  }

  void redraw() {
    std::unique_lock lock(mutex);
    const auto isOver = [&] { return isEnded; };
    std::chrono::nanoseconds wait(kQuiet);
    while (!ended.wait_for(lock, wait, isOver)) {
      draw();
      wait = std::chrono::nanoseconds(kBetween);
    }
  }
};

Progress::Progress(Redraw redraw) {
  if (::isatty(STDERR_FILENO) == 0) return;
  terminal_ = std::make_unique<Terminal>();
  if (redraw == Redraw::kAtSteps) return;
  Expected<std::thread> thread =
      startThread("progress", [terminal = terminal_.get()] { terminal->redraw(); });
  if (thread) terminal_->thread = std::move(*thread);  // else only steps show
}

Progress::~Progress() {
  if (!terminal_) return;
  hide();
  {
    const std::lock_guard lock(terminal_->mutex);
    terminal_->isEnded = true;
  }
  terminal_->ended.notify_all();
  if (terminal_->thread.joinable()) terminal_->thread.join();
}

bool Progress::at(int64_t step, int64_t steps, std::string_view what) {
  if (!terminal_) return false;
  const std::lock_guard lock(terminal_->mutex);
  terminal_->line.set(steps > 1 ? fmt::format("{} of {}: {}", step, steps, what) : std::string(what));
  return terminal_->draw();
}

void letTerminalRest() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

void Progress::hide() {
  if (!terminal_) return;
  const std::lock_guard lock(terminal_->mutex);
  writeOut(terminal_->line.clear());
}

}  // namespace sluice::tools
