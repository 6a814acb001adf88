// SPDX-License-Identifier: Apache-2.0
#include "lib/execute/replica_rank.hpp"

#include <utility>

#include "lib/context/device_clock.hpp"

namespace pecia::execute {
namespace {

report::Recorder& timed(report::Recorder& recorder, const resources::ComputePlace& place,
                        bool memory_is_apart) {
  if (memory_is_apart)
    recorder.time_by(std::make_unique<context::DeviceClock>(
        *place.device, *place.stream, [&recorder] { return recorder.now_ns(); }));
  return recorder;
}

}  // namespace

ReplicaRank::ReplicaRank(comm::Communicator& ranks, std::unique_ptr<comm::Communicator> tensors,
                         const resources::ComputePlace& place, const model::ModelConfig& config,
                         const model::WeightViews& weights, report::Recorder& recorder,
                         const Worker::Settings& settings)
    : tensors_(std::move(tensors)),
      compute_{*place.device, *place.stream, *place.backend,
               timed(recorder, place, tensors_ != nullptr)},
      worker_(tensors_ ? *tensors_ : ranks, config, weights, compute_, settings) {}

}  // namespace pecia::execute
