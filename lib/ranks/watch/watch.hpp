// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Each rank watches the next one. When a rank's process has died, or has shown no sign of life for
/// too long (stopped, lost host), the watch reports what the rank was doing and which ranks wait
/// for it. Then the job ends.
///
/// The watching thread only reads files (WatchBoard) and measures time by its own rounds. So it
/// raises no false alarm when the whole run is suspended and resumed, or when the file system
/// hangs.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "lib/base/core/activity.hpp"
#include "lib/ranks/watch/watch_words.hpp"

namespace pecia::watch {

class Watch {
 public:
  /// `end_job` ends all ranks and does not return. It is called from a thread of the watch.
  /// `activity`: what an earlier watch of this rank showed.
  explicit Watch(std::function<void()> end_job,
                 std::shared_ptr<Activity> activity = std::make_shared<Activity>());
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// Leaves the board: no rank waits for this one any more.
  ~Watch();

  /// What this rank shows to others. Communicators and recorders write into it from the start.
  const std::shared_ptr<Activity>& activity() const { return activity_; }

  /// Begins to watch, and leaves an earlier board. Every rank calls this after all ranks have made
  /// their board. `asked_to_stop` returns whether a launcher wants the process to end, which happens
  /// shortly after another process has died. It is called from the watch's thread. `stage`: of the
  /// rank, for messages; absent where there is one.
  void begin(std::unique_ptr<WatchBoard> board, std::chrono::duration<double> silence,
             std::function<bool()> asked_to_stop, std::optional<int> stage = {});

  /// Whether this rank is the one that should report why the run ends; absent before `begin`.
  std::optional<bool> first_to_speak();

  /// Text to add to an error: it describes ranks that have died, and a failed wait of this rank. ""
  /// when there is neither.
  std::string account() const;

 private:
  void end_thread();
  void watch(const std::stop_token& stop);
  void look_at_ward();
  void end_with(const std::string& fault);
  RankRecords read_all() const;

  std::function<void()> end_job_;
  std::shared_ptr<Activity> activity_;
  std::unique_ptr<WatchBoard> board_;
  std::chrono::duration<double> silence_{}, round_{};
  std::function<bool()> asked_to_stop_;
  std::optional<int> stage_;
  int ward_ = 0;
  int64_t beats_ = -1, silent_rounds_ = 0;
  std::jthread thread_;  ///< last member, because it uses all of the above
};

}  // namespace pecia::watch
