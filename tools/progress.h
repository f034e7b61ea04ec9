// Progress: one line on a terminal that shows what a long piece of work is doing.
//
// Work of less than two seconds shows nothing, and so does all work if standard error is not a terminal. The
// line changes at most five times per second and is removed at the end.
//
// ProgressLine is a value type: it knows when to write what. Progress is a resource type, neither copied nor
// moved; it writes to standard error. One thread at a time calls either.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sluice::tools {

class ProgressLine {
 public:
  // Times are in nanoseconds of any clock; `columns`: of the terminal.
  ProgressLine(int64_t begin, int columns) : begin_(begin), columns_(columns) {}

  void set(std::string_view text);

  // The bytes to write at `now`; empty if there is nothing to change, or it is too early.
  std::string draw(int64_t now);

  // The bytes that remove the line, which has no text until the next set(); empty if nothing is shown.
  std::string clear();

 private:
  int64_t begin_;
  int64_t drawn_ = 0;  // the time of the last draw() that gave bytes, if something was drawn
  int columns_;
  std::string text_, shown_;
};

enum class Redraw : uint8_t {
  kAtSteps,   // only within at(): for work that measures or starts processes, which a thread would disturb
  kByItself,  // also by a thread, so that a long first step shows
};

class Progress {
 public:
  explicit Progress(Redraw redraw);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Step `step` of `steps`, from 1, begins. Shows only `what` if there is one step. Returns whether the line
  // was written: a terminal may need the processor for a moment to show it.
  bool at(int64_t step, int64_t steps, std::string_view what);

  // Removes the line, until the next step, before something else is printed.
  void hide();

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;  // null: standard error is not one
};

// Waits until a terminal that was written to has probably shown it, before something is measured.
void letTerminalRest();

}  // namespace sluice::tools
