// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/recurrent_mixer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "lib/ranks/parallel/heads.hpp"

namespace pecia::model {

using kernels::Accumulate;
using kernels::StateRows;
using report::Kind;
using report::ScopedSpan;

namespace {

constexpr double l2_eps = 1e-6;  // added to the sum of squares of a head

TensorView heads_of(const TensorView& rows, int64_t dim) {
  return rows.reshape({rows.rows(), rows.size(1) / dim, dim});
}

int64_t rows_of(std::span<const StateRows> items) {
  int64_t rows = 0;
  for (const StateRows& item : items) rows += item.num_rows;
  return rows;
}

/// What the items have of these rows.
std::vector<StateRows> items_within(std::span<const StateRows> items, parallel::RowRange rows) {
  std::vector<StateRows> within;
  for (const StateRows& item : items) {
    const int64_t begin = std::max(item.first_row, rows.begin);
    const int64_t end = std::min(item.first_row + item.num_rows, rows.end);
    if (begin < end) within.push_back({begin, end - begin, item.state});
  }
  return within;
}

TensorView each_head_of(const TensorView& rows, int64_t dim) {
  return rows.reshape({rows.rows() * rows.size(1) / dim, dim});
}

/// The same on all ranks of the ring: those of the slowest. Collective over it.
parallel::WalkCosts walk_costs(const RecurrentConfig& config,
                               const attention::ReplicaGroups& groups,
                               const attention::Compute& compute) {
  constexpr double usual_step_s = 30e-6;  // a message of MPI and an op's start
  const kernels::RecurrencePace pace =
      compute.backend.recurrence_pace(config.key_dim, config.value_dim, compute.stream);
  const auto most = [&](double value, double unit) {
    return unit * static_cast<double>(groups.ring->all_reduce_max(std::llround(value / unit)));
  };
  const double exchange_s = groups.link_costs.exchange_s;
  return {most(pace.row_s, 1e-12), 1 / most(1 / pace.heads_at_once, 1e-6),
          exchange_s > 0 ? exchange_s : usual_step_s};
}

}  // namespace

RecurrentMixer::RecurrentMixer(const ModelConfig& config, const WeightViews& weights,
                               const attention::ReplicaGroups& groups,
                               const attention::Compute& compute, Products& products,
                               TensorParallel& tensor, recurrence::RecurrentStates& states,
                               kernels::RowInvariant row_invariant)
    : config_(config),
      recurrent_(*config.recurrent),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      groups_(groups),
      row_invariant_(row_invariant),
      states_(compute, walk_costs(*config.recurrent, groups, compute), states),
      exchange_(compute, groups.wire),
      // |x| = √(key_dim · mean of squares); queries are divided by √key_dim, too.
      query_norm_(constant(1.0f / static_cast<float>(recurrent_.key_dim))),
      key_norm_(constant(1.0f / std::sqrt(static_cast<float>(recurrent_.key_dim)))),
      raw_buffer_(compute.buffer()),
      q_buffer_(compute.buffer()),
      k_buffer_(compute.buffer()),
      v_buffer_(compute.buffer()),
      z_buffer_(compute.buffer()),
      a_buffer_(compute.buffer()),
      b_buffer_(compute.buffer()),
      decay_buffer_(compute.buffer()),
      strength_buffer_(compute.buffer()),
      through_buffer_(compute.buffer()),
      mixed_buffer_(compute.buffer()),
      squares_buffer_(compute.buffer()),
      kept_(compute) {
  const parallel::WeightCut cut = weight_cut(parallel::Sharding::shift, groups.place);
  for (int64_t layer = 0, number = 0; layer < config.layers; ++layer) {
    const bool recurs = config.mixer(layer) == MixerKind::recurrence;
    numbers_.push_back(recurs ? number++ : -1);
    vectors_.emplace_back();
    if (recurs)
      vectors_.back() =
          *cut_layer(weights.layers[layer], config, layer, weights.part, cut).recurrent;
  }
}

RecurrentMixer::Constant RecurrentMixer::constant(float value) const {
  const std::vector<float> values(recurrent_.key_dim, value);
  Constant made{compute_.buffer(), {}};
  made.weight = made.buffer.tensor(DType::fp32, {recurrent_.key_dim});
  compute_.device.copy(made.weight.data(), values.data(), recurrent_.key_dim * size_of(DType::fp32),
                       compute_.stream);
  compute_.stream.synchronize();
  return made;
}

recurrence::StateShape RecurrentMixer::state_shape(const ModelConfig& config,
                                                   const parallel::BlockPlace& place) {
  const RecurrentConfig& recurrent = *config.recurrent;
  const parallel::WeightCut cut = weight_cut(parallel::Sharding::shift, place);
  const auto part = [&](CutUnit unit) { return unit_part(config, unit, cut).size(); };
  return {config.num_layers(MixerKind::recurrence),
          part(CutUnit::recurrent_heads),
          recurrent.key_dim,
          recurrent.value_dim,
          recurrent.conv_rows - 1,
          2 * part(CutUnit::recurrent_keys) + part(CutUnit::recurrent_values)};
}

io::KvStates RecurrentMixer::saved_states(const ModelConfig& config) {
  const RecurrentConfig& recurrent = *config.recurrent;
  const ModelStage& stage = config.stage;
  return {stage.before.recurrent + config.num_layers(MixerKind::recurrence) + stage.after.recurrent,
          recurrent.heads,
          recurrent.key_heads,
          recurrent.key_dim,
          recurrent.value_dim,
          recurrent.conv_rows - 1};
}

recurrence::StatePart RecurrentMixer::state_part(const ModelConfig& config,
                                                 const parallel::BlockPlace& place, int instance) {
  const RecurrentConfig& recurrent = *config.recurrent;
  const int shards = place.sp * place.tp;
  const int mine = parallel::kv_shard(place.sp, place.sp_index, place.tp_index);
  const auto shard = [&](int index) {
    return parallel::head_shard(recurrent.heads, recurrent.key_heads, shards, index);
  };
  return {saved_states(config),
          shard(mine).q,
          shard(mine).kv,
          mine == 0 || shard(mine - 1).kv != shard(mine).kv,
          (instance * place.sp + place.sp_index) * place.tp + place.tp_index,
          config.stage.before.recurrent};
}

int64_t RecurrentMixer::elements_per_row(const RecurrentConfig& config) {
  return 2 * config.channels() + 3 * config.values() + 4 * config.heads;
}

void RecurrentMixer::begin_pass(attention::Attention& attention) {
  begin_exchange(attention.sharding(), std::ssize(attention.positions()));
  states_.begin(attention.pass(), attention.ring());
}

/// Rows are cut over SP, or over SP × TP where weights are gathered. In the shift configuration every
/// rank has them all.
void RecurrentMixer::begin_exchange(parallel::Sharding sharding, int64_t num_rows) {
  const parallel::WeightCut cut = tensor_.cut();
  const parallel::BlockPlace& place = groups_.place;
  const bool over_block = sharding == parallel::Sharding::gathered;
  comm::Communicator& group = over_block ? *groups_.block : *groups_.sp;
  exchanges_ = group.size() > 1 && sharding != parallel::Sharding::shift;
  if (!exchanges_) return;
  std::vector<parallel::RowRange> rows;
  std::vector<recurrence::ChannelPart> parts;
  for (int rank = 0; rank < group.size(); ++rank) {
    const parallel::WeightCut theirs{
        place.sp * place.tp,
        over_block ? rank : parallel::kv_shard(place.sp, rank, place.tp_index)};
    const auto part = [&](CutUnit unit) {
      const int64_t held = unit_part(config_, unit, cut).begin;
      const parallel::RowRange wanted = unit_part(config_, unit, theirs);
      return parallel::RowRange{wanted.begin - held, wanted.end - held};
    };
    rows.push_back(parallel::row_part({0, num_rows}, group.size(), rank));
    parts.push_back({part(CutUnit::recurrent_keys), part(CutUnit::recurrent_values),
                     part(CutUnit::recurrent_heads)});
  }
  exchange_.begin_pass(group, std::move(rows), std::move(parts));
}

void RecurrentMixer::begin(int64_t layer, const LayerWeights& weights, int64_t num_rows,
                           attention::Attention& attention) {
  weights_ = &*weights.recurrent, here_ = &vectors_[layer];
  states_.begin_layer(numbers_[layer]);
  const int64_t keys = weights_->k.out(), values = weights_->v.out();
  const int64_t heads = values / recurrent_.value_dim;
  const TensorView raw = rows_in(raw_buffer_, num_rows, 2 * keys + values);
  projected_ = {raw.slice_columns(0, keys), raw.slice_columns(keys, keys),
                raw.slice_columns(2 * keys, values), rows_in(a_buffer_, num_rows, heads),
                recurrent_.corrects ? rows_in(b_buffer_, num_rows, heads) : TensorView()};
  z_ = rows_in(z_buffer_, num_rows, values), mixed_ = rows_in(mixed_buffer_, num_rows, values);
  const int64_t all_rows = std::ssize(attention.positions());
  const int64_t keys_here = here_->k.out(), values_here = here_->v.out();
  const int64_t heads_here = values_here / recurrent_.value_dim;
  q_ = rows_in(q_buffer_, all_rows, keys_here), k_ = rows_in(k_buffer_, all_rows, keys_here);
  v_ = rows_in(v_buffer_, all_rows, values_here);
  through_ = exchanges_ ? rows_in(through_buffer_, all_rows, values_here) : mixed_;
  decay_ = rows_in(decay_buffer_, all_rows, heads_here);
  strength_ = rows_in(strength_buffer_, all_rows, heads_here);
}

void RecurrentMixer::project(int block, const Input& input, attention::Attention& /*attention*/) {
  const RecurrentWeights& weights = *weights_;
  bool first = true;
  const auto multiply = [&](const char* name, const LinearWeight& weight, const TensorView& all) {
    const TensorView to = tensor_.block_of(all, block);
    if (std::exchange(first, false))
      products_.linear(name, input.rows, weight, to);
    else
      products_.linear_of_same_x(name, input.rows, weight, to);
  };
  multiply("q_proj", weights.q, projected_.q);
  multiply("k_proj", weights.k, projected_.k);
  multiply("v_proj", weights.v, projected_.v);
  multiply("z_proj", weights.z, z_);
  multiply("a_proj", weights.a, projected_.a);
  if (projected_.b) multiply("b_proj", weights.b, projected_.b);
}

void RecurrentMixer::mix(int64_t /*layer*/, attention::Attention& /*attention*/) {
  const recurrence::Projected rows = exchanges_ ? exchange_.spread(projected_) : projected_;
  const parallel::RowRange all{0, q_.rows()};
  convolve_all(rows);
  if (recurrent_.corrects) norm_heads(all);
  make_gates(rows, all);
  go_through();
  if (exchanges_) exchange_.bring_home(through_, mixed_);
  gate_and_norm({0, mixed_.rows()});
}

/// On a ring of one rank each sequence's rows go through its state in one round.
void RecurrentMixer::mix_block(int64_t /*layer*/, int block, attention::Attention& /*attention*/) {
  PECIA_CHECK(!exchanges_ && states_.num_rounds() == 1 && states_.num_groups() == 1,
              "block {} of rows that pass states on in {} rounds", block, states_.num_rounds());
  const parallel::RowRange rows = tensor_.rows().blocks[block];
  const std::vector<StateRows> items = items_within(states_.rows(0), rows);
  convolve(projected_, items);
  if (recurrent_.corrects) norm_heads(rows);
  make_gates(projected_, rows);
  take_in(items, {0, decay_.size(1), 0, q_.size(1) / recurrent_.key_dim}, states_.matrices());
  gate_and_norm(rows);
}

void RecurrentMixer::convolve_all(const recurrence::Projected& rows) {
  states_.exchange_tails(std::array{rows.q, rows.k, rows.v});
  for (int round = 0; round < states_.num_rounds(); ++round) {
    states_.bring_tails(round);
    convolve(rows, states_.rows(round));
  }
}

void RecurrentMixer::convolve(const recurrence::Projected& rows, std::span<const StateRows> items) {
  if (items.empty()) return;
  const int64_t keys = q_.size(1), values = v_.size(1);
  const ScopedSpan span(compute_.recorder, "causal_conv", Kind::compute, 0,
                        2.0 * static_cast<double>(rows_of(items) * (2 * keys + values)) *
                            static_cast<double>(recurrent_.conv_rows));
  const auto part = [&](const TensorView& x, int64_t first, const TensorView& weight,
                        const TensorView& bias, const TensorView& out) {
    compute_.backend.causal_conv(
        {x, weight, bias, items, states_.tails().slice_columns(first, x.size(1)), out},
        compute_.stream);
  };
  part(rows.q, 0, here_->q_conv, here_->q_conv_bias, q_);
  part(rows.k, keys, here_->k_conv, here_->k_conv_bias, k_);
  part(rows.v, 2 * keys, here_->v_conv, here_->v_conv_bias, v_);
}

/// q and k of each head get the length 1, and q is divided by √key_dim.
void RecurrentMixer::norm_heads(parallel::RowRange range) {
  const ScopedSpan span(compute_.recorder, "l2_norm", Kind::compute);
  const auto eps = static_cast<float>(l2_eps / static_cast<double>(recurrent_.key_dim));
  for (const auto& [rows, weight] :
       {std::pair(&q_, &query_norm_.weight), std::pair(&k_, &key_norm_.weight)}) {
    const TensorView heads =
        each_head_of(rows->slice_rows(range.begin, range.size()), recurrent_.key_dim);
    compute_.backend.rms_norm({heads, *weight, eps, heads}, compute_.stream);
  }
}

void RecurrentMixer::make_gates(const recurrence::Projected& rows, parallel::RowRange range) {
  const ScopedSpan span(compute_.recorder, "recurrence_gates", Kind::compute);
  const auto of = [&](const TensorView& all) {
    return all ? all.slice_rows(range.begin, range.size()) : all;
  };
  compute_.backend.recurrence_gates({.a = of(rows.a),
                                     .b = of(rows.b),
                                     .rate = here_->rate,
                                     .bias = here_->step_bias,
                                     .decay = of(decay_),
                                     .strength = of(strength_),
                                     .least_step = static_cast<float>(recurrent_.least_step),
                                     .most_step = static_cast<float>(recurrent_.most_step)},
                                    compute_.stream);
}

/// A range of the heads of several slots is no view, so with groups of heads each item goes alone.
void RecurrentMixer::go_through() {
  states_.walk([this](int round, const parallel::HeadGroup& heads) {
    const std::vector<StateRows>& own = states_.rows(round);
    if (states_.num_groups() == 1) return take_in(own, heads, states_.matrices());
    for (size_t i = 0; i < own.size(); ++i)
      take_in(states_.alone(round, i), heads, states_.matrices(round, i, heads));
  });
}

void RecurrentMixer::take_in(std::span<const StateRows> items, const parallel::HeadGroup& heads,
                             const TensorView& matrices) {
  if (items.empty()) return;
  const auto of_keys = [&](const TensorView& all) {
    return all.slice_columns(heads.first_key_head * recurrent_.key_dim,
                             heads.key_heads * recurrent_.key_dim);
  };
  const auto of_heads = [&](const TensorView& all, int64_t width) {
    return all.slice_columns(heads.first_head * width, heads.heads * width);
  };
  const int64_t elements = heads.heads * recurrent_.value_dim * recurrent_.key_dim;
  const double flops = recurrent_.corrects ? 8 : 6;  // of a row and an element
  const ScopedSpan span(
      compute_.recorder, "recurrence", Kind::compute,
      2 * std::ssize(items) * elements * size_of(DType::fp32),
      flops * static_cast<double>(rows_of(items)) * static_cast<double>(elements));
  compute_.backend.recurrence(
      {.q = of_keys(q_),
       .k = of_keys(k_),
       .v = of_heads(v_, recurrent_.value_dim),
       .decay = of_heads(decay_, 1),
       .strength = of_heads(strength_, 1),
       .corrects = recurrent_.corrects,
       .items = items,
       .states = matrices,
       .out = of_heads(through_, recurrent_.value_dim),
       .skip = here_->skip ? here_->skip.slice_rows(heads.first_head, heads.heads) : TensorView(),
       .row_invariant = row_invariant_,
       .products = compute_.backend.operand_type(weights_->q.parts.front().weight.dtype())},
      compute_.stream);
}

void RecurrentMixer::gate_and_norm(parallel::RowRange range) {
  const TensorView y = mixed_.slice_rows(range.begin, range.size());
  if (recurrent_.corrects) {
    const TensorView heads = each_head_of(y, recurrent_.value_dim);
    products_.norm(heads, weights_->norm, heads);
  }
  {
    const ScopedSpan span(compute_.recorder, "recurrent_gate", Kind::compute);
    compute_.backend.gated_activation({z_.slice_rows(range.begin, range.size()), y, y},
                                      compute_.stream);
  }
  if (!recurrent_.corrects) norm_groups(y);
}

/// The norm is over all heads of a key head, which may be on several ranks. Each adds up the squares
/// of its own heads, so the bits do not depend on how heads are cut.
void RecurrentMixer::norm_groups(const TensorView& y) {
  const int64_t rows = y.rows(), all_heads = recurrent_.heads, dim = recurrent_.value_dim;
  const int64_t heads = y.size(1) / dim;  // that are here
  const int64_t first = unit_part(config_, CutUnit::recurrent_heads, tensor_.cut()).begin;
  const TensorView squares = squares_buffer_.tensor(DType::fp32, {rows, all_heads});
  compute_.device.zero(squares.data(), squares.elements() * size_of(DType::fp32), compute_.stream);
  products_.square_sums(heads_of(y, dim), squares.slice_columns(first, heads));
  tensor_.start_sum_of_parts(squares);
  tensor_.wait_parts();
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  const int64_t group = all_heads / recurrent_.key_heads;  // heads
  for (int64_t head = 0; head < heads;) {
    const int64_t begin = (first + head) / group * group;
    const int64_t count = std::min(begin + group - first - head, heads - head);
    const TensorView part = y.slice_columns(head * dim, count * dim);
    compute_.backend.rms_norm({.x = part,
                               .weight = weights_->norm.slice_rows(head * dim, count * dim),
                               .eps = products_.norm_eps(),
                               .out = part,
                               .squares = squares.slice_columns(begin, group),
                               .whole_width = group * dim},
                              compute_.stream);
    head += count;
  }
}

void RecurrentMixer::keep(std::span<const parallel::RowRange> places) {
  kept_.keep(places, {&mixed_});
}

void RecurrentMixer::project_output(int block, const TensorView& hidden,
                                    const TensorParallel::Change& change) {
  const TensorView x = tensor_.block_of(mixed_, block);
  const auto multiply = [&](const TensorView& to, Accumulate accumulate) {
    products_.linear("o_proj", x, weights_->o, to, accumulate,
                     products_.splits_of_part(tensor_.cut().count));
  };
  tensor_.add_product(block, hidden, multiply, change, products_.result_type(x.rows()));
}

}  // namespace pecia::model
