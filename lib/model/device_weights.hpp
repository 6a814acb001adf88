#pragma once
/// Weights in the memory of a device.

#include "lib/device/buffer.hpp"
#include "lib/model/weights.hpp"

namespace pecia::model {

/// Copies of views of the host's memory, dense, every tensor once however many views it has. They
/// pass through two pieces of pinned memory, one being filled while the other is copied, so that
/// the host keeps none of its own.
class DeviceWeights : public WeightViews {
 public:
  /// That the copies of these take.
  static int64_t bytes_of(const WeightViews& weights);

  /// Takes all the memory at once: SystemError when the device has not enough. Returns when the
  /// copies are there. `device` outlives this object.
  DeviceWeights(const WeightViews& host, device::Device& device, device::Stream& stream);

  int64_t bytes() const { return memory_.bytes(); }
  double seconds() const { return seconds_; }  ///< that the copying took

 private:
  device::Buffer memory_;
  double seconds_ = 0;
};

}  // namespace pecia::model
