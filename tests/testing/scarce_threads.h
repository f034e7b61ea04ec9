// ScarceThreads: makes a process behave as if the system had no more threads, without a real limit.
//
// Linking this replaces the C library's pthread_create().
#pragma once

namespace sluice {

// During its lifetime `left` more threads can be started; each further attempt fails, as over a limit.
class ScarceThreads {
 public:
  explicit ScarceThreads(int left);
  ~ScarceThreads();
  ScarceThreads(const ScarceThreads&) = delete;
  ScarceThreads& operator=(const ScarceThreads&) = delete;

  // The number of failed attempts.
  int refused() const;
};

// The threads of this process now. The first call must not be under ScarceThreads.
int threadsOfProcess();

}  // namespace sluice
