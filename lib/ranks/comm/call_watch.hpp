// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ends a job in which a call waits for ranks that never come.
///
/// A call of a blocking NCCL communicator returns when its work is enqueued. The first transfer
/// between two ranks connects them, and for this both must have come. If one never does, the call
/// never returns. Another thread may abort the communicator, which NCCL does not promise to end the
/// call, or end the process. So a thread of its own measures how long calls take.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace pecia::comm {

class CallWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// Gets "all_reduce #7 with all ranks: …", may abort what the call waits for, and is to end the
  /// job.
  using Late = std::function<void(const std::string&)>;

  /// `late` is called once, from the watch's thread, with the first call that takes longer than
  /// `timeout`. Without a timeout (0) nothing is watched.
  CallWatch(Clock::duration timeout, Late late);
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// A call that lasts as long as this object.
  class Call {
   public:
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { watch_.end(); }

   private:
    friend class CallWatch;
    explicit Call(CallWatch& watch) : watch_(watch) {}
    CallWatch& watch_;
  };
  /// Begins a call. There is one at a time. `operation` and `peers` must outlive it.
  [[nodiscard]] Call begin(const char* operation, int64_t number, const std::string& peers);

 private:
  void end();
  void watch(const std::stop_token& stop);

  Clock::duration timeout_;
  Late late_;
  std::mutex mutex_;
  // Of the call under way; `operation_` is null where there is none.
  const char* operation_ = nullptr;
  int64_t number_ = 0;
  const std::string* peers_ = nullptr;
  Clock::time_point since_;
  std::condition_variable_any stopped_;  ///< only a stop request notifies it
  std::jthread thread_;                  ///< last member, because it uses all of the above
};

}  // namespace pecia::comm
