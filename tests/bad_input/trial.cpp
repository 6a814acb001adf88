// SPDX-License-Identifier: Apache-2.0
#include "tests/bad_input/trial.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "lib/base/core/error.hpp"

namespace pecia::test {
namespace {

constexpr int64_t cases_per_child = 200;  // a library that leaks or confuses itself starts afresh
constexpr int refusal = 2;                // as the program ends where an input is bad
constexpr size_t most_failures = 5;

/// What a child has come to, in memory that it shares with its parent.
struct Progress {
  int64_t number, accepted, refused;
  char what[1024];  ///< why the case at `number` fails; empty while it does not
};

class SharedProgress {
 public:
  SharedProgress()
      : progress_(static_cast<Progress*>(::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                                                MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (progress_ == MAP_FAILED) throw std::runtime_error("no shared memory");
  }
  ~SharedProgress() { ::munmap(progress_, sizeof(Progress)); }
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;
  Progress* operator->() { return progress_; }

 private:
  Progress* progress_;
};

/// The most memory that this process has had at once. What was asked for and never touched is not
/// in it.
int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

/// Why the case fails; empty when it does not.
std::string failure_of(int64_t number, const Limits& limits, SharedProgress& progress,
                       const std::function<void(int64_t)>& work) {
  const int64_t before = peak_resident_bytes();
  bool refused = false;
  try {
    work(number);
  } catch (const InputError&) {
    refused = true;
  } catch (const std::exception& error) {
    return fmt::format("throws {}, which is no InputError", error.what());
  }
  const int64_t taken = peak_resident_bytes() - before;
  if (taken > limits.memory_bytes)
    return fmt::format("takes {} bytes of memory, more than {}", taken, limits.memory_bytes);
  ++(refused ? progress->refused : progress->accepted);
  return {};
}

[[noreturn]] void child(int64_t end, const Limits& limits, SharedProgress& progress,
                        const std::function<void(int64_t)>& work) {
  // Words of those that end the process themselves, a few of thousands.
  if (std::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(1);
  const rlimit no_core = {0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  // So that a case which goes astray takes this process down, not the machine.
  const rlimit addresses = {PECIA_ADDRESS_LIMIT, PECIA_ADDRESS_LIMIT};
  if (PECIA_ADDRESS_LIMIT > 0) ::setrlimit(RLIMIT_AS, &addresses);
  for (; progress->number < end; ++progress->number) {
    const itimerval of_processor = {{0, 0}, {limits.processor_s, 0}};
    ::setitimer(ITIMER_PROF, &of_processor, nullptr);
    ::alarm(60 * limits.processor_s);  // for one that sleeps; a busy machine must not look like it
    const std::string what = failure_of(progress->number, limits, progress, work);
    if (what.empty()) continue;
    what.copy(progress->what, sizeof progress->what - 1);
    ::_exit(1);
  }
  ::_exit(0);
}

std::string end_of_child(int status, const char* what) {
  if (what[0] != '\0') return what;
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF))
    return "hangs";
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ends the process with code {}", WEXITSTATUS(status));
}

}  // namespace

Outcome try_all(int64_t count, const Limits& limits, const std::function<void(int64_t)>& work) {
  Outcome outcome;
  SharedProgress progress;
  progress->number = 0;
  while (progress->number < count && outcome.failures.size() < most_failures) {
    memset(progress->what, 0, sizeof progress->what);
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("no further process");
    if (process == 0)
      child(std::min(count, progress->number + cases_per_child), limits, progress, work);
    int status = 0;
    ::waitpid(process, &status, 0);
    if (status == 0) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == refusal) {
      ++progress->refused;
      ++progress->number;
      continue;
    }
    outcome.failures.push_back({progress->number, end_of_child(status, progress->what)});
    ++progress->number;
  }
  outcome.accepted = progress->accepted;
  outcome.refused = progress->refused;
  return outcome;
}

}  // namespace pecia::test
