// SPDX-License-Identifier: Apache-2.0
#include "lib/run/parking.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "lib/engine/execute/kv_saves.hpp"
#include "lib/engine/schedule/job_limits.hpp"

namespace pecia::run {
namespace {

namespace fs = std::filesystem;

/// Bytes per second between the memory of tensors and the host's: the slower way, each the better of
/// two copies.
int64_t copy_rate(const attention::Compute& compute) {
  constexpr int64_t bytes = 8 << 20;
  const device::Buffer there = compute.buffer(bytes);
  const device::Buffer here(compute.device, device::Memory::pinned, bytes);
  const auto seconds = [&](void* to, const void* from) {
    const auto begin = std::chrono::steady_clock::now();
    compute.device.copy(to, from, bytes, compute.stream);
    compute.stream.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  seconds(there.data(), here.data());  // both are touched
  double slower = 0;
  for (const bool parks : {true, false}) {
    const auto once = [&] {
      return parks ? seconds(here.data(), there.data()) : seconds(there.data(), here.data());
    };
    slower = std::max(slower, std::min(once(), once()));
  }
  return static_cast<int64_t>(static_cast<double>(bytes) / slower);
}

}  // namespace

Parking parking_of_rank(const Setup& setup, const attention::Compute& compute) {
  const std::optional<job::KvPark> park = setup.job.kv.park;
  comm::Communicator& world = setup.world();
  Parking parking;
  parking.places.host_bytes = 0;
  if (!schedule::on_demand(setup.job) || park == job::KvPark::off) return parking;
  const int64_t token_bytes = resources::kv_bytes_of_rank(setup.config, setup.resources);
  int64_t most_bytes = 0, rate = static_cast<int64_t>(execute::KvRates::assumed);
  const int64_t free_bytes = resources::free_host_bytes(world);
  if (park != job::KvPark::disk) {
    const int64_t of_cache = setup.resources.gpus
                                 ? 0
                                 : resources::kv_memory_of_rank(setup.config, setup.resources) +
                                       resources::activation_bytes(false);
    most_bytes = parking.places.host_bytes = std::max<int64_t>(0, free_bytes - of_cache) / 2;
    rate = copy_rate(compute);
  }
  if (park != job::KvPark::host) {
    parking.places.folder = setup.job.output / "kv";
    std::error_code unknown;
    const fs::space_info space = fs::space(setup.job.output, unknown);
    if (!unknown)
      most_bytes = std::max(most_bytes, static_cast<int64_t>(space.available / 2) / world.size());
  }
  parking.tokens = -world.all_reduce_max(-(most_bytes / token_bytes));
  rate = std::max<int64_t>(1, -world.all_reduce_max(-rate));
  parking.token_s = static_cast<double>(token_bytes) / static_cast<double>(rate);
  return parking;
}

}  // namespace pecia::run
