// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Initialises MPI for the life of the program. Made once, in main; everything else receives a
/// Communicator.

#include <memory>
#include <string>

#include "lib/base/core/activity.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

class MpiEnvironment {
 public:
  /// Starts MPI if a launcher has started this process. Without one the process is rank 0 of 1 and
  /// needs no MPI, whose start takes 0.4 s and may need a launcher.
  MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
  ~MpiEnvironment();

  /// Starts MPI also without a launcher. Calls MPI_Init_thread with MPI_THREAD_FUNNELED: only the main
  /// thread communicates. Does nothing if MPI has been started.
  void start();

  /// All ranks of the job. A wait fails when nothing arrives for `wait_timeout`. All communicators
  /// show their operations in `activity`.
  std::unique_ptr<Communicator> world(
      std::chrono::seconds wait_timeout,
      std::shared_ptr<Activity> activity = std::make_shared<Activity>());

  /// Called when this rank wants to end: returns whether every rank calls it within `limit`. If
  /// not, only abort can end the job.
  static bool all_leave(std::chrono::seconds limit);

  /// Ends every rank with `exit_code`, from any thread. If MPI itself hangs, at least this process
  /// ends some seconds later.
  [[noreturn]] static void abort(int exit_code);

  /// e.g. "Open MPI v4.1.4"
  static std::string library_version();
  /// What MPI_Init_thread provided: "single", "funneled", "serialized" or "multiple". MPI must have
  /// been started.
  std::string thread_level() const;

 private:
  int provided_ = 0;
};

}  // namespace pecia::comm
