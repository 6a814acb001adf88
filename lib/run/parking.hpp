// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where the keys of sequences that yield are parked in a run, and how fast.

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/kv_parking.hpp"
#include "lib/run/setup.hpp"

namespace pecia::run {

struct Parking {
  attention::ParkingPlaces places;  ///< of this rank
  int64_t tokens = 0;               ///< SchedulerLimits::parking_tokens
  double token_s = 0;               ///< SchedulerLimits::parking_s, until keys have been parked
};

/// Of the host's memory that weights and caches leave, and of the free space of the output folder,
/// the ranks use a half, each an equal share. What a rank can park is the larger of the two, since
/// a sequence goes into one or the other as a whole. Copies are timed. Collective; tokens and
/// seconds are the same on every rank.
Parking parking_of_rank(const Setup& setup, const attention::Compute& compute);

}  // namespace pecia::run
