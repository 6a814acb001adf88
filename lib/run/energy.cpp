// SPDX-License-Identifier: Apache-2.0
#include "lib/run/energy.hpp"

#include <algorithm>

namespace pecia::run {
namespace {

/// Absent where a rank has no reading although it counts such a device, or where no rank does.
std::optional<double> sum_of_all(comm::Communicator& world, const std::optional<double>& mine,
                                 bool is_missing) {
  const double sum = world.all_reduce_sum(mine.value_or(0));
  const bool any = world.all_reduce_max(mine.has_value()) > 0;
  const bool missing = world.all_reduce_max(is_missing) > 0;
  return any && !missing ? std::optional(sum) : std::nullopt;
}

}  // namespace

cluster::EnergyMeter::Sources metered_by(const Setup& setup) {
  cluster::EnergyMeter::Sources sources;
  sources.cpus = setup.world().split_by_host()->rank() == 0;
  const auto& places = setup.ranks.places;
  const size_t mine = setup.ranks.ordered->rank();
  const bool is_first = std::find(places.begin(), places.end(), places.at(mine)) - places.begin() ==
                        static_cast<std::ptrdiff_t>(mine);
  if (setup.resources.gpus && is_first) sources.gpu_uuid = setup.place.device->info().uuid;
  return sources;
}

report::EnergyReport energy_of_run(comm::Communicator& world, const cluster::Energy& mine) {
  return {.cpu_joules = sum_of_all(world, mine.cpus, !mine.why_no_cpus.empty()),
          .gpu_joules = sum_of_all(world, mine.gpu, !mine.why_no_gpu.empty()),
          .why_no_cpus = mine.why_no_cpus,
          .why_no_gpus = mine.why_no_gpu};
}

}  // namespace pecia::run
