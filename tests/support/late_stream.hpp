#pragma once
#include <functional>

#include "lib/device/stream.hpp"

namespace pecia::test {

/// A stream whose work is done when somebody waits for it.
class LateStream : public device::Stream {
 public:
  virtual void enqueue(std::function<void()> work) = 0;
};

/// On a stream of the CPU at once.
inline void submit(const device::Stream& stream, std::function<void()> work) {
  if (auto* const late = dynamic_cast<LateStream*>(const_cast<device::Stream*>(&stream)))
    late->enqueue(std::move(work));
  else
    work();
}

}  // namespace pecia::test
