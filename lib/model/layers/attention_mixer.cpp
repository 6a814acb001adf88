// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/attention_mixer.hpp"

#include <algorithm>

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

namespace {

/// Reshapes [rows, heads, head_dim] → [rows, heads · head_dim].
TensorView flat(const TensorView& heads) {
  return heads.reshape({heads.rows(), heads.row_elements()});
}

}  // namespace

AttentionMixer::AttentionMixer(const ModelConfig& config, const attention::Compute& compute,
                               Products& products, TensorParallel& tensor)
    : config_(config),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      q_buffer_(compute.buffer()),
      k_buffer_(compute.buffer()),
      v_buffer_(compute.buffer()),
      all_buffer_(compute.buffer()),
      mixed_buffer_(compute.buffer()),
      squares_buffer_(compute.buffer()),
      gate_buffer_(compute.buffer()),
      rotated_buffer_(compute.buffer()),
      kept_(compute) {}

void AttentionMixer::begin(int64_t layer, const LayerWeights& of_layer, int64_t num_rows,
                           attention::Attention& attention) {
  const AttentionWeights& weights = of_layer.attention;
  attention.begin_layer(layer);
  head_dim_ = config_.heads(layer).dim;
  fresh_.reset();
  const bool gains = compute_.backend.gains_by_fewer_ops();
  // All ranks that exchange queries count the same rows of their block.
  const bool many = std::ssize(attention.positions()) >= many_rows;
  query_type_ = gains && many ? attention.query_type() : DType::fp32;
  const bool fresh =
      gains && num_rows > 0 && tensor_.num_blocks() == 1 && config_.qk_norm != QkNorm::all_heads &&
      config_.rope.temperature_beta == 0 &&  // else q has tables of its own
      !config_.unrotated_temperature && config_.qk_norm != QkNorm::rotated_heads &&
      !config_.norms_values && query_type_ != DType::fp16 && attention.takes_fresh_heads();
  if (fresh) fresh_.emplace();
  // fp8 products round what they are given, which differs where it was rounded to bf16 before.
  const bool rounds_once = weights.o.parts.front().weight.dtype() != DType::fp8;
  const DType mixed = gains && attention.attends_once() && rounds_once && !weights.gate
                          ? products_.operand_type()
                          : DType::fp32;
  weights_ = &weights;
  gate_ =
      weights.gate ? heads_in(gate_buffer_, DType::fp32, num_rows, *weights.gate) : TensorView();
  mixed_ = heads_in(mixed_buffer_, mixed, num_rows, weights.q);
  if (!fresh) make_heads(num_rows);
  q_norm_ = weights.q_norm, k_norm_ = weights.k_norm;
  if (config_.qk_norm != QkNorm::all_heads) return;
  const auto of_here = [&](const TensorView& all, CutUnit unit) {
    const parallel::RowRange part = unit_part(config_, unit, tensor_.cut());
    return all.slice_rows(part.begin, part.size());
  };
  q_norm_ = of_here(q_norm_, CutUnit::query_heads), k_norm_ = of_here(k_norm_, CutUnit::kv_heads);
}

TensorView AttentionMixer::heads_in(device::Buffer& buffer, DType type, int64_t rows,
                                    const LinearWeight& weight) const {
  return buffer.tensor(type, {rows, weight.out() / head_dim_, head_dim_});
}

void AttentionMixer::make_heads(int64_t rows) {
  q_ = heads_in(q_buffer_, DType::fp32, rows, weights_->q);
  k_ = v_ = {};
  if (!weights_->has_keys) return;
  k_ = heads_in(k_buffer_, DType::fp32, rows, weights_->k);
  v_ = heads_in(v_buffer_, DType::fp32, rows, weights_->has_values ? weights_->v : weights_->k);
}

TensorView AttentionMixer::multiply(int block, const Input& input, const char* name,
                                    const LinearWeight& weight, const TensorView& all,
                                    kernels::SameX same_x) {
  const TensorView heads = tensor_.block_of(all, block);
  if (same_x == kernels::SameX::yes)
    products_.linear_of_same_x(name, input.rows, weight, flat(heads));
  else
    products_.linear(name, input.rows, weight, flat(heads));
  return heads;
}

void AttentionMixer::project_gate(int block, const Input& input) {
  if (gate_) multiply(block, input, "gate_proj", *weights_->gate, gate_, kernels::SameX::yes);
}

/// Every head is counted by one rank, and the others add zero. So the sums have the same bits
/// however the heads are cut.
void AttentionMixer::start_squares(const TensorView& q, const TensorView& k) {
  const int64_t rows = q.rows(), num_heads = config_.num_heads, num_kv_heads = config_.num_kv_heads;
  const TensorView both = squares_buffer_.tensor(DType::fp32, {rows * (num_heads + num_kv_heads)});
  q_squares_ = both.slice_rows(0, rows * num_heads).reshape({rows, num_heads});
  k_squares_ = both.slice_rows(rows * num_heads, rows * num_kv_heads).reshape({rows, num_kv_heads});
  compute_.device.zero(both.data(), both.elements() * size_of(DType::fp32), compute_.stream);
  const auto add = [&](const TensorView& heads, const TensorView& squares, CutUnit unit) {
    const int count = tensor_.cut().count, index = tensor_.cut().index;
    const parallel::RowRange here = unit_part(config_, unit, {count, index});
    const int64_t counted = index == 0 ? 0 : unit_part(config_, unit, {count, index - 1}).end;
    const int64_t first = std::max(here.begin, counted) / head_dim_;
    const int64_t own = here.end / head_dim_ - first;
    if (own <= 0) return;  // the rank before has the same head
    PECIA_CHECK(own == heads.size(1), "{} of {} heads are counted", own, heads.size(1));
    products_.square_sums(heads, squares.slice_columns(first, own));
  };
  add(q, q_squares_, CutUnit::query_heads);
  add(k, k_squares_, CutUnit::kv_heads);
  tensor_.start_sum_of_parts(both);
}

void AttentionMixer::finish(const TensorView& heads, const TensorView& norm_weight,
                            const TensorView& squares, const RotationTables& tables,
                            const TensorView& to) {
  switch (config_.qk_norm) {
    case QkNorm::none:
      break;
    case QkNorm::rotated_heads:
      if (!norm_weight) break;  // the layer does not rotate
      [[fallthrough]];
    case QkNorm::each_head: {
      const TensorView each = heads.reshape({heads.rows() * heads.size(1), head_dim_});
      products_.norm(each, norm_weight, each);
      break;
    }
    case QkNorm::all_heads:
      products_.norm_of_heads(flat(heads), norm_weight, squares);
      break;
  }
  if (!tables.cos) return;
  const ScopedSpan span(compute_.recorder, "rope", Kind::compute);
  compute_.backend.rope({heads, tables.cos, tables.sin, config_.rope.pairs, to, 0, tables.scale},
                        compute_.stream);
}

/// One product for q, k and v where their weights lie in memory so, else one for each.
void AttentionMixer::project_fresh(const Input& input) {
  const AttentionWeights& weights = *weights_;
  const int64_t rows = input.rows.rows(), queries = weights.q.out(), keys = weights.k.out();
  TensorView q, k, v;
  if (const auto all = products_.joined({&weights.q, &weights.k, &weights.v})) {
    const TensorView heads = all_buffer_.tensor(DType::fp32, {rows, queries + 2 * keys});
    q = heads.slice_columns(0, queries), k = heads.slice_columns(queries, keys);
    v = heads.slice_columns(queries + keys, keys);
    products_.linear("qkv_proj", input.rows, *all, heads);
  } else {
    make_heads(rows);
    q = flat(q_), k = flat(k_), v = flat(v_);
    products_.linear("q_proj", input.rows, weights.q, q);
    products_.linear_of_same_x("k_proj", input.rows, weights.k, k);
    products_.linear_of_same_x("v_proj", input.rows, weights.v, v);
  }
  fresh_ = {.q = q,
            .k = k,
            .v = v,
            .q_norm = q_norm_,
            .k_norm = k_norm_,
            .eps = products_.norm_eps(),
            .cos = input.keys.cos,
            .sin = input.keys.sin,
            .pairs = config_.rope.pairs,
            .q_out = heads_in(rotated_buffer_, rotated_type(input.keys), rows, weights.q)};
  project_gate(0, input);
}

/// Of v's product, or of k's, which is neither normed nor rotated yet.
void AttentionMixer::project_values(int block, const Input& input, const TensorView& k) {
  const TensorView v = tensor_.block_of(v_, block);
  if (weights_->has_values) multiply(block, input, "v_proj", weights_->v, v_, kernels::SameX::yes);
  if (!config_.norms_values) {
    if (!weights_->has_values) compute_.copy(k, v);
    return;
  }
  const auto each_head = [&](const TensorView& heads) {
    return heads.reshape({heads.rows() * heads.size(1), head_dim_});
  };
  products_.norm(each_head(weights_->has_values ? v : k), weights_->v_norm, each_head(v));
}

void AttentionMixer::project(int block, const Input& input, attention::Attention& attention) {
  if (fresh_) return project_fresh(input);
  const bool all_heads = config_.qk_norm == QkNorm::all_heads;
  using enum kernels::SameX;
  const bool has_keys = weights_->has_keys;
  TensorView k;
  if (has_keys) k = multiply(block, input, "k_proj", weights_->k, k_, no);
  TensorView q;
  if (all_heads) {  // the sums travel beside v's product
    q = multiply(block, input, "q_proj", weights_->q, q_, yes);
    start_squares(q, k);
  }
  if (has_keys) project_values(block, input, k);
  if (all_heads) tensor_.wait_parts();
  if (has_keys) {
    finish(k, k_norm_, k_squares_, input.keys, k);
    if (block + 1 == tensor_.num_blocks()) attention.start_keys(k_, v_);  // travels beside q
  }
  if (!all_heads) q = multiply(block, input, "q_proj", weights_->q, q_, has_keys ? yes : no);
  project_gate(block, input);
  const DType rotated = rotated_type(input.queries);
  queries_ =
      rotated == DType::fp32 ? q_ : heads_in(rotated_buffer_, rotated, q_.rows(), weights_->q);
  finish(q, q_norm_, q_squares_, input.queries, tensor_.block_of(queries_, block));
}

void AttentionMixer::mix(int64_t layer, attention::Attention& attention) {
  if (fresh_) return attention.run_fresh(layer, *fresh_, mixed_);
  attention.run(layer, queries_, mixed_);
}

void AttentionMixer::mix_block(int64_t layer, int block, attention::Attention& attention) {
  attention.run_block(layer, block, {queries_, k_, v_}, mixed_);
}

void AttentionMixer::keep(std::span<const parallel::RowRange> places) {
  kept_.keep(places, {&mixed_, &gate_});
}

void AttentionMixer::project_output(int block, const TensorView& hidden,
                                    const TensorParallel::Change& change) {
  const TensorView x = tensor_.block_of(flat(mixed_), block);
  if (gate_) {
    const ScopedSpan span(compute_.recorder, "attention_gate", Kind::compute);
    compute_.backend.gated_activation(
        {tensor_.block_of(flat(gate_), block), x, x, kernels::Activation::sigmoid},
        compute_.stream);
  }
  const auto multiply = [&](const TensorView& to, Accumulate accumulate) {
    products_.linear("o_proj", x, weights_->o, to, accumulate,
                     products_.splits_of_part(tensor_.cut().count));
  };
  tensor_.add_product(block, hidden, multiply, change, products_.result_type(x.rows()));
}

}  // namespace pecia::model
