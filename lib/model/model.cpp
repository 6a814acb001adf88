#include "lib/model/model.hpp"

#include <algorithm>
#include <cstring>

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

Model::Model(const ModelConfig& config, const Weights& weights, kernels::Backend& backend,
             device::Stream& stream, report::Recorder& recorder)
    : config_(config),
      weights_(weights),
      backend_(backend),
      stream_(stream),
      recorder_(recorder),
      rotary_(config) {}

int64_t Model::activation_bytes_per_row(const ModelConfig& config) {
  const int64_t heads = 2 * config.num_heads + 2 * config.num_kv_heads;  // q, mixed, k, v
  const int64_t partial = config.num_heads * config.head_dim;  // the ring's partial output
  return size_of(DType::fp32) * (2 * config.hidden + heads * config.head_dim + partial +
                                 2 * config.ffn + config.rope.rotary_dim);
}

TensorView Model::forward(const Rows& rows, context::RingAttention& attention) {
  const ScopedSpan span(recorder_, "forward", Kind::phase);
  const auto count = static_cast<int64_t>(rows.tokens.size());
  PECIA_CHECK(count == static_cast<int64_t>(attention.positions().size()) &&
                  rows.rope_lengths.size() == rows.tokens.size(),
              "{} tokens, {} positions, {} lengths", count, attention.positions().size(),
              rows.rope_lengths.size());

  const TensorView hidden = hidden_.tensor(DType::fp32, {count, config_.hidden});
  {
    const ScopedSpan embedding(recorder_, "embedding", Kind::compute);
    backend_.embedding({weights_.embedding, rows.tokens, hidden}, stream_);
    const int64_t half = rotary_.rotary_dim() / 2;
    rotary_.tables(attention.positions(), rows.rope_lengths,
                   cos_.tensor(DType::fp32, {count, half}),
                   sin_.tensor(DType::fp32, {count, half}));
  }
  for (int64_t index = 0; index < config_.layers; ++index) {
    recorder_.set_layer(static_cast<int32_t>(index));
    layer(index, hidden, attention);
  }
  recorder_.set_layer(-1);

  const auto wanted = static_cast<int64_t>(rows.output_rows.size());
  const TensorView output = output_.tensor(DType::fp32, {wanted, config_.hidden});
  for (int64_t i = 0; i < wanted; ++i)
    std::memcpy(output.row(i), hidden.row(rows.output_rows[i]),
                config_.hidden * size_of(DType::fp32));
  norm(output, weights_.final_norm, output);
  return output;
}

void Model::layer(int64_t index, const TensorView& hidden, context::RingAttention& attention) {
  const LayerWeights& weights = weights_.layers[index];
  const int64_t rows = hidden.rows(), head_dim = config_.head_dim;
  const auto heads = [&](device::Buffer& buffer, int64_t count) {
    return buffer.tensor(DType::fp32, {rows, count, head_dim});
  };
  const auto flat = [&](const TensorView& x) { return x.reshape({rows, x.row_elements()}); };

  const TensorView normed = normed_.tensor(DType::fp32, {rows, config_.hidden});
  norm(hidden, weights.attention_norm, normed);
  const TensorView q = heads(q_, config_.num_heads);
  const TensorView k = heads(k_, config_.num_kv_heads);
  const TensorView v = heads(v_, config_.num_kv_heads);
  linear("q_proj", normed, weights.q, flat(q));
  linear("k_proj", normed, weights.k, flat(k));
  linear("v_proj", normed, weights.v, flat(v));
  if (weights.q_norm) {
    const auto each_head = [&](const TensorView& x) {
      return x.reshape({rows * x.size(1), head_dim});
    };
    norm(each_head(q), weights.q_norm, each_head(q));
    norm(each_head(k), weights.k_norm, each_head(k));
  }
  {
    const ScopedSpan span(recorder_, "rope", Kind::compute);
    const TensorView cos = cos_.tensor(DType::fp32, {rows, rotary_.rotary_dim() / 2});
    const TensorView sin = sin_.tensor(DType::fp32, {rows, rotary_.rotary_dim() / 2});
    for (const TensorView& x : {q, k}) backend_.rope({x, cos, sin, config_.rope.pairs}, stream_);
  }
  const TensorView mixed = heads(mixed_, config_.num_heads);
  attention.run(index, q, k, v, mixed);
  linear("o_proj", flat(mixed), weights.o, hidden, Accumulate::yes);

  norm(hidden, weights.ffn_norm, normed);
  const TensorView gate = gate_.tensor(DType::fp32, {rows, config_.ffn});
  const TensorView up = up_.tensor(DType::fp32, {rows, config_.ffn});
  linear("gate_proj", normed, weights.gate, gate);
  linear("up_proj", normed, weights.up, up);
  {
    const ScopedSpan span(recorder_, "swiglu", Kind::compute);
    backend_.gated_activation({gate, up, gate}, stream_);
  }
  linear("down_proj", gate, weights.down, hidden, Accumulate::yes);
}

void Model::logits(const TensorView& hidden, const TensorView& out) {
  linear("lm_head", hidden, weights_.head, out);
}

void Model::linear(const char* name, const TensorView& x, const LinearWeight& weight,
                   const TensorView& y, Accumulate accumulate) {
  int64_t column = 0, bytes = 0;
  for (const LinearWeight::Part& part : weight.parts)
    bytes += part.weight.elements() * size_of(part.weight.dtype());
  const ScopedSpan span(recorder_, name, Kind::compute, bytes,
                        2.0 * static_cast<double>(x.rows()) * static_cast<double>(x.size(1)) *
                            static_cast<double>(y.size(1)));
  for (const LinearWeight::Part& part : weight.parts) {
    const int64_t width = part.weight.rows();
    backend_.linear({x, part.weight, part.bias, y.slice_columns(column, width), accumulate},
                    stream_);
    column += width;
  }
}

void Model::norm(const TensorView& x, const TensorView& weight, const TensorView& out) {
  const ScopedSpan span(recorder_, "rms_norm", Kind::compute);
  backend_.rms_norm({x, weight, static_cast<float>(config_.rms_norm_eps), out}, stream_);
}

}  // namespace pecia::model
