// SPDX-License-Identifier: Apache-2.0
#include "lib/run/stop.hpp"

#include <algorithm>
#include <charconv>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/launch.hpp"

namespace pecia::run {

std::optional<double> seconds_to_drain(const job::Job::Limits& limits) {
  if (limits.wall_time_s) {
    if (*limits.wall_time_s <= limits.grace_s)
      fail<InputError>(
          "limits.grace of {} s leaves nothing of limits.wall_time, {} s; lower the one or "
          "raise the other",
          limits.grace_s, *limits.wall_time_s);
    return *limits.wall_time_s - limits.grace_s;
  }
  const auto text = cluster::launch_facts().end_time;
  if (!text) return {};
  int64_t end = 0;
  const auto [stopped, error] = std::from_chars(text->data(), text->data() + text->size(), end);
  if (error != std::errc() || stopped != text->data() + text->size())
    fail<InputError>("SLURM_JOB_END_TIME is '{}', not a time in seconds; set limits.wall_time",
                     *text);
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return std::max(0.0, static_cast<double>(end) - now.count() - limits.grace_s);
}

Stop::Stop(const DrainSignals& signals, std::optional<Clock::time_point> drain_at,
           comm::SharedCounter& stopped_replicas)
    : signals_(signals), drain_at_(drain_at), stopped_replicas_(stopped_replicas) {}

StopReason Stop::reason() const {
  if (signals_.received()) return StopReason::signal;
  return drain_at_ && Clock::now() >= *drain_at_ ? StopReason::wall_time : StopReason::none;
}

bool Stop::agreed(bool stop_requested) {
  if (stopping_) return true;
  if (stop_requested) {
    stopped_replicas_.next();
    stopping_ = true;
  } else if (Clock::now() >= next_look_) {  // asking may cost a message, and passes may be short
    stopping_ = stopped_replicas_.value() > 0;
    next_look_ = Clock::now() + std::chrono::seconds(1);
  }
  return stopping_;
}

}  // namespace pecia::run
