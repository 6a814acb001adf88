// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Brings the replicas' journals into the results while they run, on a thread of the root rank.

#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "lib/files/results/journal_gatherer.hpp"

namespace pecia::run {

/// The thread makes system calls alone, and no call of MPI or HDF5. It sleeps for 20 times as long
/// as it has gathered, 0.1 s at least and 2 s at most. So few replicas' results can be read at once,
/// and many replicas cost the root rank little.
class GatherResults {
 public:
  /// Begins. Nobody else writes the results meanwhile. `output` has the folder of journals.
  explicit GatherResults(const std::filesystem::path& output);
  /// Stops the thread; journals with rows that were not brought in stay for the next start.
  ~GatherResults();
  GatherResults(const GatherResults&) = delete;
  GatherResults& operator=(const GatherResults&) = delete;

  /// Throws what has stopped the thread, if anything has.
  void check();

  /// Call it once no replica appends any more. Stops the thread, brings in the rest and removes the
  /// journals. Throws the thread's error, or SystemError where a journal ends within a row.
  void finish();

 private:
  void work(const std::stop_token& stop);

  io::JournalGatherer gatherer_;  ///< the thread's, and after it finish's
  std::mutex mutex_;              ///< of failure_
  std::condition_variable_any wake_;
  std::exception_ptr failure_;
  std::jthread thread_;  ///< last member, because it uses all of the above
};

}  // namespace pecia::run
