// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Each rank watches the next one. A rank whose process has died, or shows no sign of life for too
/// long (stopped, lost host), is named with what it was at and who waits for it; then the job ends.
///
/// The watching thread reads files only (WatchBoard) and counts time by its own rounds. So a run
/// that is suspended as a whole and goes on accuses nobody, nor does one whose file system hangs.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "lib/core/activity.hpp"
#include "lib/watch/watch_words.hpp"

namespace pecia::watch {

class Watch {
 public:
  /// `end_job` ends all ranks and does not return; it is called from a thread of the watch.
  explicit Watch(std::function<void()> end_job);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// Leaves the board: nobody waits for this rank any more.
  ~Watch();

  /// What this rank shows. Communicators and recorders write into it, from the beginning on.
  const std::shared_ptr<Activity>& activity() const { return activity_; }

  /// Begins to watch, on every rank after all have made their board. `asked_to_stop`: whether a
  /// launcher wants the process to end, as it does shortly after another one has died; called
  /// from the watch's thread.
  void begin(std::unique_ptr<WatchBoard> board, std::chrono::duration<double> silence,
             std::function<bool()> asked_to_stop);

  /// Whether this rank is the one to say why the run ends; absent before `begin`.
  std::optional<bool> first_to_speak();

  /// Of ranks that have died, and of a wait of this rank that has failed: what to add to an error.
  /// "" when there is nothing.
  std::string account() const;

 private:
  void watch(const std::stop_token& stop);
  void look_at_ward();
  void end_with(const std::string& fault);
  RankRecords read_all() const;

  std::function<void()> end_job_;
  std::shared_ptr<Activity> activity_ = std::make_shared<Activity>();
  std::unique_ptr<WatchBoard> board_;
  std::chrono::duration<double> silence_{}, round_{};
  std::function<bool()> asked_to_stop_;
  int ward_ = 0;
  int64_t beats_ = -1, silent_rounds_ = 0;
  std::jthread thread_;  ///< last: it uses all of the above
};

}  // namespace pecia::watch
