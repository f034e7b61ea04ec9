// Cores where there is no hwloc: by the system's own calls, which do not tell which units belong to one core,
// so every unit counts as one.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "runtime/workers/cores.h"

namespace sluice {
namespace {

// Reads the units of a process; 0 is the calling thread. Returns false if the system does not say.
bool readUnits(pid_t process, cpu_set_t& units) {
  CPU_ZERO(&units);
  return sched_getaffinity(process, sizeof(units), &units) == 0;
}

}  // namespace

void readMachine() {}

Cores usableCores() {
  cpu_set_t own, starter, both;
  if (!readUnits(0, own)) return {.units = {}, .count = 1};
  Cores cores;
  for (int unit = 0; unit < CPU_SETSIZE; ++unit)
    if (CPU_ISSET(unit, &own)) cores.units.push_back(unit);
  cores.count = static_cast<int>(cores.units.size());
  if (readUnits(getppid(), starter)) {
    CPU_AND(&both, &own, &starter);
    cores.areOwn = CPU_EQUAL(&both, &own) && !CPU_EQUAL(&own, &starter);
  }
  return cores;
}

void bindThread(std::thread& thread, int unit) {
  if (unit < 0 || unit >= CPU_SETSIZE) return;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(unit, &only);
  pthread_setaffinity_np(thread.native_handle(), sizeof(only), &only);
}

}  // namespace sluice
