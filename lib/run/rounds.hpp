// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rounds of one run: the ranks and the weights stay, and a program that reads the answers asks for
/// the next round by a line on rank 0's standard input:
///
///     {"input": ["rounds/2/prompts.h5"], "output": "rounds/2/run"}
///
/// Paths are as in the job file. When a round has ended, a line on standard output says so:
///
///     {"output": "rounds/1/run", "exit_code": 0}
///
/// The run ends with standard input, or with a round that was drained.

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "lib/ranks/comm/communicator.hpp"
#include "lib/run/run.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::run {

/// The lines of a file descriptor, which are asked for without waiting long.
class LineReader {
 public:
  explicit LineReader(int descriptor) : descriptor_(descriptor) {}

  /// The next line, without its end. Absent where none has come within `longest`, or none will come
  /// any more: then ended() is true. Throws SystemError, and InputError for a line above 1 MB.
  std::optional<std::string> next(std::chrono::milliseconds longest);
  bool ended() const { return ended_ && text_.empty(); }

 private:
  int descriptor_;
  std::string text_;  ///< read, but not yet returned
  bool ended_ = false;
};

/// The job of a round: `asked` with the inputs and the output of the line, as `pecia run --set` takes
/// them. Collective over `world`; fails on all ranks together.
job::Job job_of_round(const job::Job& asked, const RunOptions& options, const std::string& line,
                      comm::Communicator& world);

struct NextRound {
  std::optional<std::string> line;  ///< absent: there is no other round
  bool stopped = false;             ///< a rank wants to stop
};

/// Waits for a line that is not empty, for the end of `lines`, or until `stops` is true on a rank.
/// Collective over `world`; `lines` are read on rank 0.
NextRound next_round(comm::Communicator& world, LineReader& lines,
                     const std::function<bool()>& stops);

/// Writes the line that says how a round has ended.
void tell_end_of_round(const job::Job& job, int exit_code);

}  // namespace pecia::run
