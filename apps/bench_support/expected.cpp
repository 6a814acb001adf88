// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_support/expected.hpp"

#include "lib/model/layer_weights.hpp"
#include "lib/parallel/traffic.hpp"

namespace pecia::bench {
namespace {

using parallel::Sharding;

constexpr int64_t fp32_bytes = 4;

/// Among this rank's place of the ring: rows whose next token is sampled.
std::vector<int64_t> sampled_rows(const context::ReplicaGroups& groups,
                                  const schedule::Plan& plan) {
  std::vector<int64_t> sampled;
  int64_t end = 0;
  for (const schedule::PlanItem& item : plan.items) {
    end += parallel::num_rows({item.rows}, groups.cp, groups.cp_index);
    const int64_t last = item.rows.first + item.rows.count - 1;
    if (item.sampled_index >= 0 &&
        parallel::row_owner(item.rows, groups.cp, last) == groups.cp_index)
      sampled.push_back(end - 1);
  }
  return sampled;
}

/// Hidden rows to all ranks that hold parts of the vocabulary, where each has rows of its own; and
/// what each rank made of its columns of the logits to the ranks that sample the rows, greedily and
/// without log-probabilities.
int64_t logits_bytes(const context::ReplicaGroups& groups, const schedule::Plan& plan,
                     const model::ModelConfig& config, int64_t num_rows) {
  const bool rows_differ = plan.sharding == Sharding::sp_tp || plan.sharding == Sharding::gathered;
  const Sharding of_table = plan.sharding == Sharding::gathered ? Sharding::base : plan.sharding;
  const parallel::WeightCut cut = weight_cut(of_table, groups.place);
  parallel::BlockPlace place = groups.place;
  int64_t own = 0, all = 0;
  for (int index = 0; index < (rows_differ ? place.tp : 1); ++index) {
    if (rows_differ) place.tp_index = index;
    const parallel::ShardedRows held = sharded_rows(plan.sharding, place, num_rows);
    for (const int64_t row : sampled_rows(groups, plan)) {
      if (held.own_index(row) < 0) continue;
      ++all;
      if (place.tp_index == groups.place.tp_index) ++own;
    }
  }
  const int64_t columns = model::unit_part(config, model::CutUnit::vocab, cut).size();
  const auto shape = execute::shortlist_shape({}, 0, config.vocab, cut.count);
  const int64_t row_bytes = shape ? shape->row_bytes() : columns * fp32_bytes;
  const int64_t hidden = rows_differ ? own * config.hidden * (cut.count - 1) * fp32_bytes : 0;
  return hidden + logits_traffic(all, cut, row_bytes);
}

}  // namespace

ExpectedBytes& ExpectedBytes::operator+=(const ExpectedBytes& other) {
  layers += other.layers, outside += other.outside;
  return *this;
}

ExpectedBytes expected_bytes(execute::Worker& worker, const schedule::Plan& plan,
                             const model::ModelConfig& config, DType weights) {
  const context::RingTraffic attention = worker.attention().expected_traffic();
  const parallel::BlockShape shape =
      model::block_shape(config, weights, worker.model().operand_type());
  const context::ReplicaGroups& groups = worker.groups();
  const auto rows = static_cast<int64_t>(worker.attention().positions().size());
  return {config.layers * (attention.ring_bytes + attention.all_to_all_bytes +
                           layer_traffic(shape, plan.sharding, groups.place, rows).total()),
          embedding_traffic(shape, plan.sharding, groups.place, rows) +
              logits_bytes(groups, plan, config, rows)};
}

}  // namespace pecia::bench
