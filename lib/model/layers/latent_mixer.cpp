// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/latent_mixer.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

namespace {

/// [rows, heads, width] → [rows, heads · width]
TensorView as_rows(const TensorView& heads) {
  return heads.reshape({heads.rows(), heads.row_elements()});
}

/// [rows, heads, width] → columns [first, first + count) of [rows · heads, width]
TensorView of_each_head(const TensorView& heads, int64_t first, int64_t count) {
  return heads.reshape({heads.rows() * heads.size(1), heads.size(2)}).slice_columns(first, count);
}

}  // namespace

LatentMixer::LatentMixer(const ModelConfig& config, const attention::Compute& compute,
                         Products& products, TensorParallel& tensor,
                         std::optional<int64_t> most_bytes)
    : latent_(*config.latent),
      num_heads_(config.num_heads),
      most_bytes_(most_bytes.value_or(
          attention::most_expanded_bytes(compute.backend.gains_by_fewer_ops()))),
      pairs_(config.rope.pairs),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      key_buffer_(compute.buffer()),
      down_buffer_(compute.buffer()),
      normed_buffer_(compute.buffer()),
      query_buffer_(compute.buffer()),
      attending_buffer_(compute.buffer()),
      mixed_buffer_(compute.buffer()),
      value_buffer_(compute.buffer()),
      wide_buffer_(compute.buffer()),
      head_buffer_(compute.buffer()),
      kept_(compute) {}

void LatentMixer::begin(int64_t layer, const LayerWeights& of_layer, int64_t num_rows,
                        attention::Attention& attention) {
  const AttentionWeights& weights = of_layer.attention;
  attention.begin_layer(layer);
  weights_ = &weights;
  expanded_ = attention.expands_latents();
  heads_ = weights.q.out() / latent_.query_dim();
  keys_ = key_buffer_.tensor(DType::fp32, {num_rows, 1, latent_.key_dim()});
  attending_ = attending_buffer_.tensor(
      DType::fp32, {num_rows, heads_, expanded_ ? latent_.query_dim() : latent_.key_dim()});
  mixed_ = mixed_buffer_.tensor(
      DType::fp32, {num_rows, heads_, expanded_ ? latent_.value_dim : latent_.kv_rank});
}

void LatentMixer::rotate(const TensorView& heads, int64_t first,
                         const RotationTables& tables) const {
  const ScopedSpan span(compute_.recorder, "rope", Kind::compute);
  compute_.backend.rope({heads, tables.cos, tables.sin, pairs_, heads, first, tables.scale},
                        compute_.stream);
}

void LatentMixer::project_keys(int block, const Input& input) {
  const TensorView keys = tensor_.block_of(keys_, block), rows = as_rows(keys);
  products_.linear("kv_down_proj", input.rows, weights_->latent->kv_down, rows);
  const TensorView latents = rows.slice_columns(0, latent_.kv_rank);
  products_.norm_latents(latents, weights_->k_norm, latents);
  rotate(keys, latent_.kv_rank, input.keys);
}

/// [rows, heads, query_dim], rotated.
void LatentMixer::project_queries(const Input& input, const TensorView& queries) {
  const int64_t rows = input.rows.rows();
  if (const auto& down = weights_->latent->q_down) {
    const TensorView latents = down_buffer_.tensor(DType::fp32, {rows, latent_.q_rank});
    const TensorView normed =
        normed_buffer_.tensor(products_.operand_type(), {rows, latent_.q_rank});
    products_.linear_of_same_x("q_down_proj", input.rows, *down, latents);
    products_.norm_latents(latents, weights_->q_norm, normed);
    products_.linear("q_proj", normed, weights_->q, as_rows(queries));
  } else {
    products_.linear_of_same_x("q_proj", input.rows, weights_->q, as_rows(queries));
  }
  rotate(queries, latent_.nope_dim, input.queries);
}

void LatentMixer::absorb(const TensorView& queries, const TensorView& absorbed) {
  products_.linear_of_heads("key_up_proj", as_rows(queries), weights_->latent->key_up, heads_,
                            as_rows(absorbed));
  const ScopedSpan span(compute_.recorder, "copy_rotated", Kind::compute);
  compute_.copy(of_each_head(queries, latent_.nope_dim, latent_.rope_dim),
                of_each_head(absorbed, latent_.kv_rank, latent_.rope_dim));
}

void LatentMixer::project(int block, const Input& input, attention::Attention& attention) {
  project_keys(block, input);
  if (block + 1 == tensor_.num_blocks()) attention.start_keys(keys_, {});  // travel beside q
  const TensorView attending = tensor_.block_of(attending_, block);
  if (expanded_) return project_queries(input, attending);
  const TensorView queries =
      query_buffer_.tensor(DType::fp32, {attending.rows(), heads_, latent_.query_dim()});
  project_queries(input, queries);
  absorb(queries, attending);
}

void LatentMixer::mix(int64_t layer, attention::Attention& attention) {
  attention.expand_with(*this, most_bytes_);
  attention.run(layer, attending_, mixed_);
}

void LatentMixer::mix_block(int64_t layer, int block, attention::Attention& attention) {
  attention.run_block(layer, block, {attending_, keys_, {}}, mixed_);
}

/// Products of a type other than fp32 are rounded from fp32.
void LatentMixer::expand(const TensorView& latents, parallel::HeadRange heads, const TensorView& k,
                         const TensorView& v) {
  const LatentWeights& weights = weights_->latent.value();
  const parallel::WeightCut cut = tensor_.cut();
  const int64_t first =
      heads.begin - parallel::head_shard(num_heads_, 1, cut.count, cut.index).q.begin;
  const int64_t tokens = latents.rows();
  const TensorView c = latents.slice_columns(0, latent_.kv_rank);
  const DType held = weights.head_keys.parts.front().weight.dtype();
  const bool is_operand = c.dtype() == compute_.backend.operand_type(held);
  const TensorView x = is_operand ? c : compute_.as_type(c, DType::fp32, wide_buffer_);
  const bool writes_type =
      k.dtype() == DType::fp32 ||
      (compute_.backend.rounds_products() && k.dtype() == compute_.backend.operand_type(held));
  kernels::SameX same_x = kernels::SameX::no;
  // Columns [0, rows of a matrix) of [heads · tokens, width], from head `head` on.
  const auto multiply = [&](const LinearWeight& all, int64_t head, int64_t count, int64_t rows,
                            const TensorView& to) {
    for_each_matrix_of_heads(
        slice_rows(all, (first + head) * rows, count * rows), rows,
        [&](const TensorView& matrices, int64_t done, int64_t some) {
          const TensorView own =
              to.slice_rows((head + done) * tokens, tokens).slice_columns(0, rows);
          const TensorView y = writes_type ? own : head_buffer_.tensor(DType::fp32, {tokens, rows});
          compute_.backend.head_linear({.heads = some,
                                        .x = x,
                                        .x_step = 0,
                                        .weight = matrices,
                                        .y = y,
                                        .y_step = tokens * to.size(1),
                                        .same_x = same_x},
                                       compute_.stream);
          if (!writes_type) compute_.copy(y, own);
          same_x = kernels::SameX::yes;
        });
  };
  const auto rows_of = [&](const TensorView& all) {
    return all.reshape({heads.size() * tokens, all.size(2)});
  };
  const int64_t at_once = writes_type ? heads.size() : 1;  // rounded while a cache has them
  for (int64_t head = 0; head < heads.size(); head += at_once) {
    multiply(weights.head_keys, head, at_once, latent_.nope_dim, rows_of(k));
    multiply(weights.value_up, head, at_once, latent_.value_dim, rows_of(v));
  }
  const TensorView rotated = latents.slice_columns(latent_.kv_rank, latent_.rope_dim);
  rotated_copies_.clear();
  for (int64_t head = 0; head < heads.size(); ++head)
    rotated_copies_.push_back({rotated,
                               {},
                               rows_of(k)
                                   .slice_rows(head * tokens, tokens)
                                   .slice_columns(latent_.nope_dim, latent_.rope_dim)});
  compute_.backend.pick_rows({rotated_copies_}, compute_.stream);
}

void LatentMixer::keep(std::span<const parallel::RowRange> places) {
  kept_.keep(places, {&mixed_});
}

void LatentMixer::project_output(int block, const TensorView& hidden,
                                 const TensorParallel::Change& change) {
  const TensorView mixed = as_rows(tensor_.block_of(mixed_, block));
  TensorView values = mixed;
  if (!expanded_) {
    values = value_buffer_.tensor(DType::fp32, {mixed.rows(), heads_ * latent_.value_dim});
    products_.linear_of_heads("value_up_proj", mixed, weights_->latent->value_up, heads_, values);
  }
  const auto multiply = [&](const TensorView& to, Accumulate accumulate) {
    products_.linear("o_proj", values, weights_->o, to, accumulate,
                     products_.splits_of_part(tensor_.cut().count));
  };
  tensor_.add_product(block, hidden, multiply, change, products_.result_type(values.rows()));
}

}  // namespace pecia::model
