// ScarceThreads: a process in which the system has no more threads, without a limit of the system's.
//
// Linking this puts a pthread_create() of its own in front of the C library's.
#pragma once

namespace sluice {

// While it lives, `left` more threads can be started; each further try fails, as over a limit.
class ScarceThreads {
 public:
  explicit ScarceThreads(int left);
  ~ScarceThreads();
  ScarceThreads(const ScarceThreads&) = delete;
  ScarceThreads& operator=(const ScarceThreads&) = delete;

  // Tries that failed.
  int refused() const;
};

// Of this process, now. The first call is not under ScarceThreads.
int threadsOfProcess();

}  // namespace sluice
