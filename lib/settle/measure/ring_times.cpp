// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/ring_times.hpp"

#include <algorithm>
#include <array>

#include "lib/base/core/error.hpp"
#include "lib/model/attention/attention.hpp"

namespace pecia::measure {
namespace {

using attention::Compute;
using parallel::AttentionExchange;

/// Attention of a layer over the ring, and one sequence whose keys are in its cache.
class RingLayer {
 public:
  /// For passes of `most_keys` keys at most.
  RingLayer(comm::Communicator& ring, const Compute& compute, const AttentionShape& heads,
            DType wire, int64_t most_keys)
      : ranks_(ring.size()),
        compute_(compute),
        heads_(heads),
        groups_(attention::make_replica_groups(ring, 1, 1, {}, 1, wire)),
        cache_({1, heads.num_kv_heads, heads.head_dim, heads.kv_dtype}, slots_of(most_keys),
               compute.device),
        attention_(groups_, {heads.num_heads, heads.num_kv_heads}, {kernels::Window()}, compute,
                   cache_),
        q_(compute.buffer()),
        k_(compute.buffer()),
        v_(compute.buffer()),
        out_(compute.buffer()) {}

  /// Seconds of a pass of `rows` new tokens after `cached` ones, of the slowest rank of `world`.
  double pass_s(comm::Communicator& world, int64_t rows, int64_t cached, AttentionExchange way) {
    attention_.ledger().add(sequence, std::vector<int64_t>(ranks_, slots_of(rows + cached)));
    if (cached > 0)
      attention_.ledger().append({sequence, 0, cached}, parallel::team_of_all(ranks_));
    attention_.begin_pass({{parallel::team_of_all(ranks_, way), {{sequence, cached, rows}}}},
                          ++passes_);
    const int64_t own = attention_.pass().count();
    const TensorView q =
        zeros(q_, attention_.query_type(), {own, heads_.num_heads, heads_.head_dim});
    const TensorView k = zeros(k_, DType::fp32, {own, heads_.num_kv_heads, heads_.head_dim});
    const TensorView v = zeros(v_, DType::fp32, {own, heads_.num_kv_heads, heads_.head_dim});
    const TensorView out = zeros(out_, DType::fp32, {own, heads_.num_heads, heads_.head_dim});
    compute_.stream.synchronize();
    const double seconds = seconds_of_all(world, [&] {
      attention_.start_keys(k, v);
      attention_.run(0, q, out);
      compute_.stream.synchronize();
    });
    attention_.ledger().settle();
    attention_.ledger().remove(sequence);
    return seconds;
  }

 private:
  static constexpr parallel::SequenceId sequence = 1;

  /// Of each rank, for tokens that come in two parts: each has two chunks of a part.
  int64_t slots_of(int64_t tokens) const { return 2 * (tokens / (2 * ranks_) + 2); }

  TensorView zeros(device::Buffer& buffer, DType type, std::initializer_list<int64_t> shape) const {
    const TensorView all = buffer.tensor(type, shape);
    compute_.device.zero(all.data(), all.elements() * size_of(type), compute_.stream);
    return all;
  }

  int ranks_;
  Compute compute_;
  AttentionShape heads_;
  attention::ReplicaGroups groups_;
  attention::KvCache cache_;
  attention::Attention attention_;
  device::Buffer q_, k_, v_, out_;
  int64_t passes_ = 0;
};

parallel::RingTimes times_of(comm::Communicator& world, RingLayer& layer, int64_t rows,
                             int64_t cached) {
  constexpr size_t rounds = 3;
  std::array<std::array<double, rounds>, 2> seconds{};
  for (size_t round = 0; round < rounds; ++round) {
    seconds[0][round] = layer.pass_s(world, rows, cached, AttentionExchange::pass_kv);
    seconds[1][round] = layer.pass_s(world, rows, cached, AttentionExchange::pass_q);
  }
  for (auto& of_way : seconds) std::ranges::sort(of_way);
  parallel::RingTimes times{{}, seconds[0][rounds / 2], seconds[1][rounds / 2]};
  times.load.add(rows, cached);
  return times;
}

}  // namespace

std::vector<parallel::RingTimes> measure_ring_times(comm::Communicator& world,
                                                    comm::Communicator& ring,
                                                    const Compute& compute,
                                                    const AttentionShape& heads, DType wire,
                                                    const RingTimesLimits& limits) {
  PECIA_CHECK(ring.size() > 1 && heads.values_in_keys == 0, "a ring of {} ranks with keys that {}",
              ring.size(), heads.values_in_keys > 0 ? "hold their values" : "have values");
  constexpr int64_t fewest_keys = 512, more = 4;
  constexpr std::array<int64_t, 6> parts{64, 16, 8, 4, 2, 1};  // of the keys, new tokens are one
  const int64_t shared = 2 * int64_t{ring.size()};             // tokens of which each rank has some
  std::vector<parallel::RingTimes> found;
  double all_s = 0;
  for (int64_t keys = fewest_keys * ring.size(); keys <= limits.most_keys || found.empty();
       keys *= more) {
    double these_s = 0;
    RingLayer layer(ring, compute, heads, wire, keys);
    for (const AttentionExchange way : {AttentionExchange::pass_kv, AttentionExchange::pass_q})
      these_s += layer.pass_s(world, keys, 0, way);  // touches pages
    for (const int64_t part : parts) {
      const int64_t rows = std::max(shared, keys / part);
      found.push_back(times_of(world, layer, rows, keys - rows));
      these_s += 3 * (found.back().pass_kv_s + found.back().pass_q_s);
    }
    all_s += these_s;
    if (all_s + static_cast<double>(more * more) * these_s > limits.seconds) break;
  }
  return found;
}

}  // namespace pecia::measure
