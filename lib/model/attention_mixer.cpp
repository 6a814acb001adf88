// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention_mixer.hpp"

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

AttentionMixer::AttentionMixer(const ModelConfig& config, const context::Compute& compute,
                               Products& products, TensorParallel& tensor)
    : config_(config),
      compute_(compute),
      products_(products),
      tensor_(tensor),
      q_buffer_(compute.buffer()),
      k_buffer_(compute.buffer()),
      v_buffer_(compute.buffer()),
      mixed_buffer_(compute.buffer()) {}

void AttentionMixer::begin(const AttentionWeights& weights, int64_t num_rows) {
  const auto heads = [&](device::Buffer& buffer, const LinearWeight& weight) {
    return buffer.tensor(DType::fp32,
                         {num_rows, weight.out() / config_.head_dim, config_.head_dim});
  };
  weights_ = &weights;
  q_ = heads(q_buffer_, weights.q), k_ = heads(k_buffer_, weights.k);
  v_ = heads(v_buffer_, weights.v), mixed_ = heads(mixed_buffer_, weights.q);
}

void AttentionMixer::project(int block, const Input& input, context::Attention& attention) {
  const auto make = [&](const char* name, const LinearWeight& weight, const TensorView& all) {
    const TensorView heads = tensor_.block_of(all, block);
    products_.linear(name, input.rows, weight, flat(heads));
    return heads;
  };
  const auto turn = [&](const TensorView& heads, const TensorView& norm_weight) {
    const TensorView each = heads.reshape({heads.rows() * heads.size(1), config_.head_dim});
    if (norm_weight) products_.norm(each, norm_weight, each);
    const ScopedSpan span(compute_.recorder, "rope", Kind::compute);
    compute_.backend.rope({heads, input.cos, input.sin, config_.rope.pairs}, compute_.stream);
  };
  turn(make("k_proj", weights_->k, k_), weights_->k_norm);
  make("v_proj", weights_->v, v_);
  if (block + 1 == tensor_.num_blocks()) attention.start_keys(k_, v_);  // travels beside q
  turn(make("q_proj", weights_->q, q_), weights_->q_norm);
}

void AttentionMixer::mix(int64_t layer, context::Attention& attention) {
  attention.run(layer, q_, mixed_);
}

void AttentionMixer::project_output(int block, const TensorView& hidden) {
  const TensorView x = tensor_.block_of(flat(mixed_), block);
  tensor_.add_product(block, hidden, [&](const TensorView& to, Accumulate accumulate) {
    products_.linear("o_proj", x, weights_->o, to, accumulate,
                     products_.splits_of_part(tensor_.cut().count));
  });
}

}  // namespace pecia::model
