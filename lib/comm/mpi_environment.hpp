// SPDX-License-Identifier: Apache-2.0
#pragma once
/// MPI for the life of the program. Made once, in main; everything else receives a Communicator.

#include <memory>
#include <string>

#include "lib/comm/communicator.hpp"
#include "lib/core/activity.hpp"

namespace pecia::comm {

class MpiEnvironment {
 public:
  /// MPI_Init_thread with MPI_THREAD_FUNNELED: only the main thread communicates. A program started
  /// without a launcher is rank 0 of 1.
  MpiEnvironment(int& argc, char**& argv);
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  ~MpiEnvironment();

  /// All ranks of the job. `wait_timeout`: how long a wait may see nothing arrive before it fails.
  /// `activity`: where all communicators show what they do.
  std::unique_ptr<Communicator> world(
      std::chrono::seconds wait_timeout,
      std::shared_ptr<Activity> activity = std::make_shared<Activity>());

  /// Whether every rank comes here, to end, before `limit` is over. Else only abort is left.
  static bool all_leave(std::chrono::seconds limit);

  /// Ends every rank with `exit_code`, from any thread. Where MPI itself hangs, this process at
  /// least ends, some seconds later.
  [[noreturn]] static void abort(int exit_code);

  /// e.g. "Open MPI v4.1.4"
  static std::string library_version();
  /// What MPI_Init_thread provided: "single", "funneled", "serialized" or "multiple".
  std::string thread_level() const;

 private:
  int provided_ = 0;
};

}  // namespace pecia::comm
