// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/tensor_pairs.hpp"

#include <algorithm>
#include <limits>

#include "lib/settle/measure/calibration.hpp"

namespace pecia::measure {
namespace {

/// Seconds that a message of `bytes` takes one way.
double one_way_s(comm::Communicator& world, comm::Communicator& tensors,
                 const attention::Compute& compute, cluster::RankPair pair, int64_t bytes) {
  constexpr int tries = 20;
  const int rank = world.rank();
  const bool starts = rank == pair.from, answers = rank == pair.to;
  const int peer = starts ? pair.to : pair.from;
  const device::Buffer out = compute.buffer(starts || answers ? bytes : 0);
  const device::Buffer in = compute.buffer(out.bytes());
  const auto size = static_cast<size_t>(out.bytes());
  compute.device.zero(out.data(), out.bytes(), compute.stream);
  const auto send = [&] {
    tensors.start_send_receive({out.as<std::byte>(), size}, peer, {}, peer)->wait();
    compute.stream.synchronize();
  };
  const auto receive = [&] {
    tensors.start_send_receive({}, peer, {in.as<std::byte>(), size}, peer)->wait();
    compute.stream.synchronize();
  };
  const auto round_trip = [&] {
    if (starts) send(), receive();
    if (answers) receive(), send();
  };
  double best_s = std::numeric_limits<double>::infinity();
  round_trip();  // the first message makes connections
  for (int i = 0; i < tries; ++i) best_s = std::min(best_s, seconds_of_all(world, round_trip));
  return best_s / 2;
}

}  // namespace

std::vector<cluster::PairFigures> measure_tensor_pairs(comm::Communicator& world,
                                                       comm::Communicator& tensors,
                                                       const attention::Compute& compute,
                                                       std::span<const cluster::RankPair> pairs) {
  constexpr int64_t few_bytes = 8, many_bytes = int64_t{32} << 20;
  std::vector<cluster::PairFigures> figures;
  for (const cluster::RankPair& pair : pairs) {
    const double few_s = one_way_s(world, tensors, compute, pair, few_bytes);
    const double many_s = one_way_s(world, tensors, compute, pair, many_bytes);
    figures.push_back({pair, 1e6 * few_s, 1e-9 * static_cast<double>(many_bytes) / many_s});
  }
  return figures;
}

}  // namespace pecia::measure
