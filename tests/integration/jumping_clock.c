// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a program: its wall clock stands a day ahead and a day behind by turns of 50 ms. Clocks that only go
   forward are left alone, so whatever is measured by them stays right. */

#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long jump_s(void) {
  struct timespec now;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  return now.tv_nsec / 50000000 % 2 == 0 ? 86400 : -86400;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const long failed = syscall(SYS_clock_gettime, clock, time);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += jump_s();
  return (int)failed;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
