// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where the ranks of a run show each other that they live and what they are at: a folder with a
/// file per rank that all hosts reach. A rank holds a lock on its file for as long as its process
/// lives, however it ends; and rewrites it now and then, which a stopped process does not. Nothing
/// here communicates or depends on clocks.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lib/core/activity.hpp"

namespace pecia::watch {

/// An Activity as other ranks see it. Texts end with a zero byte.
struct RankRecord {
  struct Series {
    uint64_t group;
    int64_t number;
  };
  int64_t beats = 0;     ///< how often it was shown: the sign of life
  uint8_t left = 0;      ///< the rank has finished with the run, in whatever way
  uint8_t unlocked = 0;  ///< the file system has no locks, so nothing says that the process is dead
  std::array<char, 64> host{};
  std::array<char, 32> phase{}, span{}, operation{};  ///< operation: waited for; empty: none
  int32_t layer = -1;
  int64_t pass = -1;
  uint64_t group = 0;  ///< of the operation
  int64_t number = 0;
  std::array<Series, 64> series{};

  bool waits() const { return operation[0] != '\0'; }
  /// Absent: the rank has no such series.
  std::optional<int64_t> number_in(uint64_t series_group) const;
};

RankRecord record_of(const Activity& activity, const std::string& host);

class WatchBoard {
 public:
  /// A new folder for the ranks' files in `output`, which is made if absent. Throws SystemError.
  static std::filesystem::path make_folder(const std::filesystem::path& output);
  /// Removes those beside `folder` that ended runs have left behind: no living rank is there.
  static void remove_others(const std::filesystem::path& folder);

  /// Makes this rank's file. Throws SystemError. Others may read once all ranks have come here.
  WatchBoard(std::filesystem::path folder, int rank, int size);
  WatchBoard(const WatchBoard&) = delete;
  WatchBoard& operator=(const WatchBoard&) = delete;
  /// Leaves: shows so and removes the file; the last one removes the folder, and the output if it
  /// was made with it and is empty still.
  ~WatchBoard();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Replaces what the others see of this rank, `beats`, `left` and `unlocked` excepted. What
  /// cannot be written now is left to the next time.
  void show(const RankRecord& record);
  /// Absent: the rank has left, or cannot be read.
  std::optional<RankRecord> read(int rank) const;
  /// The rank's process has ended without leaving.
  bool is_dead(int rank) const;

  /// Whether nobody has called this before: who is to say why the run ends.
  bool first_to_speak();

 private:
  std::filesystem::path path(int rank) const;

  std::filesystem::path folder_;
  int rank_, size_;
  int lock_ = -1;
  RankRecord shown_;
};

}  // namespace pecia::watch
