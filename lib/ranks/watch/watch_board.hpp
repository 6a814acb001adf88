// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A folder, reachable from all hosts, in which the ranks of a run show each other that they are
/// alive and what they are doing. Each rank has one file there. The rank holds a lock on it until
/// its process ends in any way, and rewrites the file regularly, which a stopped process does not.
/// Nothing here communicates or depends on clocks.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lib/base/core/activity.hpp"

namespace pecia::watch {

/// An Activity as other ranks see it. Strings end with a zero byte.
struct RankRecord {
  struct Series {
    uint64_t group;
    int64_t number;
  };
  int64_t beats = 0;     ///< number of times it was shown: the sign of life
  uint8_t left = 0;      ///< the rank has finished with the run, with success or not
  uint8_t unlocked = 0;  ///< the file system has no locks, so a dead process cannot be detected
  std::array<char, 64> host{};
  std::array<char, 32> phase{}, span{}, operation{};  ///< operation waited for; empty: none
  int32_t layer = -1;
  int64_t pass = -1;
  int32_t team = -1, instance = -1;
  uint64_t group = 0;  ///< group of the operation
  int64_t number = 0;
  std::array<Series, 64> series{};

  bool waits() const { return operation[0] != '\0'; }
  /// The number of the last operation in the series; absent if the rank has no such series.
  std::optional<int64_t> number_in(uint64_t series_group) const;
};

RankRecord record_of(const Activity& activity, const std::string& host);

class WatchBoard {
 public:
  /// Makes a new folder for the ranks' files in `output`, and `output` itself if absent. Throws
  /// SystemError.
  static std::filesystem::path make_folder(const std::filesystem::path& output);
  /// Removes other boards' folders beside `folder` if no living rank uses them: ended runs left
  /// them.
  static void remove_others(const std::filesystem::path& folder);

  /// Makes this rank's file. Throws SystemError. Other ranks may read once all ranks have made
  /// theirs.
  WatchBoard(std::filesystem::path folder, int rank, int size);
  WatchBoard(const WatchBoard&) = delete;
  WatchBoard& operator=(const WatchBoard&) = delete;
  /// Marks this rank as left and removes its file. The last rank removes the folder. It also
  /// removes the output folder if this was made together with the board and is still empty.
  ~WatchBoard();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Replaces what others see of this rank, except `beats`, `left` and `unlocked`. A write that
  /// fails is not repeated; the next call writes again.
  void show(const RankRecord& record);
  /// The record of a rank; absent when it has left or cannot be read.
  std::optional<RankRecord> read(int rank) const;
  /// Whether the rank's process has ended without leaving.
  bool is_dead(int rank) const;

  /// Whether this is the first call on any rank. That rank should report why the run ends.
  bool first_to_speak();

 private:
  std::filesystem::path path(int rank) const;

  std::filesystem::path folder_;
  int rank_, size_;
  int lock_ = -1;
  RankRecord shown_;
};

}  // namespace pecia::watch
