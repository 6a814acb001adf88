#pragma once
#include <functional>
#include <utility>

#include "lib/device/commands.hpp"
#include "lib/device/stream.hpp"

namespace pecia::test {

/// A stream whose work is done when somebody waits for it. A step that is the same work as the one
/// before is done by doing that one's again, as a graph does it.
class LateStream : public device::Stream {
 public:
  void enqueue(std::function<void()> work) {
    enqueue_held();
    put(std::move(work));
  }
  /// Work that follows from `parts` alone: in a step it is held back.
  template <typename... Parts>
  void submit(std::function<void()> work, const Parts&... parts) {
    if (!holds_) return put(std::move(work));
    held_.add([this, work = std::move(work)] { put(work); }, parts...);
  }

  void begin_step() override { holds_ = true; }
  void end_step() override {
    if (!std::exchange(holds_, false)) return;
    if (held_.same_as(step_))
      ++repeated_steps_;
    else
      std::swap(step_, held_);
    held_.clear();
    step_.enqueue();
  }
  void drop_step() override {
    holds_ = false;
    held_.clear();
  }
  int64_t repeated_steps() const { return repeated_steps_; }

 protected:
  void enqueue_held() {
    if (!std::exchange(holds_, false)) return;
    held_.enqueue();
    held_.clear();
  }

 private:
  virtual void put(std::function<void()> work) = 0;

  bool holds_ = false;
  device::Commands held_, step_;
  int64_t repeated_steps_ = 0;
};

/// On a stream of the CPU at once. Without parts it is not held back.
template <typename... Parts>
void submit(const device::Stream& stream, std::function<void()> work, const Parts&... parts) {
  auto* const late = dynamic_cast<LateStream*>(const_cast<device::Stream*>(&stream));
  if (late == nullptr)
    work();
  else if constexpr (sizeof...(parts) == 0)
    late->enqueue(std::move(work));
  else
    late->submit(std::move(work), parts...);
}

}  // namespace pecia::test
