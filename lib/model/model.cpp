#include "lib/model/model.hpp"

#include <algorithm>
#include <cstring>

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

Model::Model(const ModelConfig& config, const Weights& weights,
             const context::ReplicaGroups& groups, kernels::Backend& backend,
             device::Stream& stream, report::Recorder& recorder,
             kernels::RowInvariant row_invariant)
    : config_(config),
      weights_(weights),
      backend_(backend),
      stream_(stream),
      recorder_(recorder),
      rotary_(config),
      tensor_(groups, recorder),
      gather_(config, weights, groups, recorder),
      row_invariant_(row_invariant) {
  const parallel::WeightCut cut = weight_cut(parallel::Sharding::shift, groups.place);
  if (cut == weights.cut()) return;
  for (const LayerWeights& held : weights.layers)
    shifted_.push_back(cut_layer(held, config, weights.cut(), cut));
}

int64_t Model::activation_bytes_per_row(const ModelConfig& config) {
  const int64_t heads = 2 * config.num_heads + 2 * config.num_kv_heads;  // q, mixed, k, v
  const int64_t partial = config.num_heads * config.head_dim;  // the ring's partial output
  return size_of(DType::fp32) * (2 * config.hidden + heads * config.head_dim + partial +
                                 2 * config.ffn + config.rope.rotary_dim);
}

void Model::forward(const Rows& rows, context::Attention& attention) {
  const ScopedSpan span(recorder_, "forward", Kind::phase);
  const auto count = static_cast<int64_t>(rows.tokens.size());
  PECIA_CHECK(count == static_cast<int64_t>(attention.positions().size()) &&
                  rows.rope_lengths.size() == rows.tokens.size(),
              "{} tokens, {} positions, {} lengths", count, attention.positions().size(),
              rows.rope_lengths.size());
  const parallel::Sharding sharding = attention.sharding();
  tensor_.begin_pass(sharding, count);
  const bool gathered = sharding == parallel::Sharding::gathered;
  if (gathered) gather_.begin_pass();

  const TensorView hidden =
      hidden_.tensor(DType::fp32, {tensor_.rows().own.size(), config_.hidden});
  embed(rows, hidden);
  {
    const ScopedSpan tables(recorder_, "rope_tables", Kind::compute);
    const parallel::RowRange linear = tensor_.rows().linear;
    const int64_t half = rotary_.rotary_dim() / 2;
    rotary_.tables(std::span(attention.positions()).subspan(linear.begin, linear.size()),
                   std::span(rows.rope_lengths).subspan(linear.begin, linear.size()),
                   cos_.tensor(DType::fp32, {linear.size(), half}),
                   sin_.tensor(DType::fp32, {linear.size(), half}));
  }
  for (int64_t index = 0; index < config_.layers; ++index) {
    recorder_.set_layer(static_cast<int32_t>(index));
    if (gathered)
      layer(index, gather_.layer(index), hidden, attention);
    else
      layer(index, tensor_.cut() == weights_.cut() ? weights_.layers[index] : shifted_[index],
            hidden, attention);
  }
  recorder_.set_layer(-1);
}

void Model::embed(const Rows& rows, const TensorView& hidden) {
  const parallel::RowRange held = vocab_part(config_, weights_.cut());
  const parallel::RowRange part = vocab_part(config_, tensor_.vocab_cut());
  tensor_.embed(hidden, [&](const TensorParallel::Rows& ranges, const TensorView& to) {
    const ScopedSpan span(recorder_, "embedding", Kind::compute);
    int64_t begin = 0;
    for (const parallel::RowRange& range : ranges) {
      backend_.embedding({weights_.embedding.slice_rows(part.begin - held.begin, part.size()),
                          std::span(rows.tokens).subspan(range.begin, range.size()),
                          to.slice_rows(begin, range.size()), part.begin},
                         stream_);
      begin += range.size();
    }
  });
}

Model::Outputs Model::outputs(std::span<const int64_t> rows) {
  Outputs outputs;
  std::vector<int64_t> counts;
  std::vector<int64_t> own;  // rows of hidden_
  const parallel::RowRange mine = tensor_.rows().own;
  for (const parallel::RowRange& range : tensor_.vocab_rows()) {
    counts.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < range.begin || rows[i] >= range.end) continue;
      ++counts.back();
      outputs.which.push_back(static_cast<int64_t>(i));
      if (range == mine) own.push_back(rows[i] - mine.begin);
    }
  }
  const auto count = static_cast<int64_t>(own.size());
  const TensorView hidden = hidden_.tensor(DType::fp32, {mine.size(), config_.hidden});
  const TensorView output = output_.tensor(DType::fp32, {count, config_.hidden});
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(output.row(i), hidden.row(own[i]), config_.hidden * size_of(DType::fp32));
  norm(output, weights_.final_norm, output);
  outputs.hidden = tensor_.gather_outputs(output, counts);
  return outputs;
}

void Model::layer(int64_t index, const LayerWeights& weights, const TensorView& hidden,
                  context::Attention& attention) {
  const int64_t rows = tensor_.rows().linear.size(), head_dim = config_.head_dim;
  const auto heads = [&](device::Buffer& buffer, const LinearWeight& weight) {
    return buffer.tensor(DType::fp32, {rows, weight.out() / head_dim, head_dim});
  };
  const auto flat = [&](const TensorView& x) { return x.reshape({rows, x.row_elements()}); };
  const auto normalised = [&](const TensorView& norm_weight) {
    const TensorView normed = normed_.tensor(DType::fp32, {hidden.rows(), config_.hidden});
    norm(hidden, norm_weight, normed);
    return tensor_.gather(normed);
  };

  const TensorView x = normalised(weights.attention_norm);
  const TensorView q = heads(q_, weights.q), k = heads(k_, weights.k), v = heads(v_, weights.v);
  linear("q_proj", x, weights.q, flat(q));
  linear("k_proj", x, weights.k, flat(k));
  linear("v_proj", x, weights.v, flat(v));
  if (weights.q_norm) {
    const auto each_head = [&](const TensorView& all) {
      return all.reshape({rows * all.size(1), head_dim});
    };
    norm(each_head(q), weights.q_norm, each_head(q));
    norm(each_head(k), weights.k_norm, each_head(k));
  }
  {
    const ScopedSpan span(recorder_, "rope", Kind::compute);
    const TensorView cos = cos_.tensor(DType::fp32, {rows, rotary_.rotary_dim() / 2});
    const TensorView sin = sin_.tensor(DType::fp32, {rows, rotary_.rotary_dim() / 2});
    for (const TensorView& each : {q, k})
      backend_.rope({each, cos, sin, config_.rope.pairs}, stream_);
  }
  const TensorView mixed = heads(mixed_, weights.q);
  attention.run(index, q, k, v, mixed);
  tensor_.add_product(hidden, [&](const TensorView& to, Accumulate accumulate) {
    linear("o_proj", flat(mixed), weights.o, to, accumulate);
  });

  const TensorView y = normalised(weights.ffn_norm);
  const TensorView gate = gate_.tensor(DType::fp32, {rows, weights.gate.out()});
  const TensorView up = up_.tensor(DType::fp32, {rows, weights.up.out()});
  linear("gate_proj", y, weights.gate, gate);
  linear("up_proj", y, weights.up, up);
  {
    const ScopedSpan span(recorder_, "swiglu", Kind::compute);
    backend_.gated_activation({gate, up, gate}, stream_);
  }
  tensor_.add_product(hidden, [&](const TensorView& to, Accumulate accumulate) {
    linear("down_proj", gate, weights.down, to, accumulate);
  });
}

void Model::logits(const TensorView& hidden, const TensorView& out) {
  if (vocab_parts() == 1) return linear("lm_head", hidden, head_part(), out);
  tensor_.exchange_logits(logits_part(hidden), out);
}

parallel::RowRange Model::vocab_range() const {
  return vocab_part(config_, tensor_.vocab_cut());
}

LinearWeight Model::head_part() const {
  const parallel::RowRange held = vocab_part(config_, weights_.cut());
  const parallel::RowRange part = vocab_range();
  return slice_rows(weights_.head, part.begin - held.begin, part.size());
}

TensorView Model::logits_part(const TensorView& hidden) {
  const TensorView part = logits_.tensor(DType::fp32, {hidden.rows(), vocab_range().size()});
  linear("lm_head", hidden, head_part(), part);
  return part;
}

void Model::linear(const char* name, const TensorView& x, const LinearWeight& weight,
                   const TensorView& y, Accumulate accumulate) {
  const ScopedSpan span(recorder_, name, Kind::compute, weight.bytes(),
                        2.0 * static_cast<double>(x.rows()) * static_cast<double>(x.size(1)) *
                            static_cast<double>(y.size(1)));
  const bool rows = weight.blocks == LinearWeight::Blocks::rows;
  int64_t column = 0;  // of y, or of x
  for (const LinearWeight::Part& part : weight.parts) {
    const int64_t width = rows ? part.weight.rows() : part.weight.size(1);
    const Accumulate each = !rows && column > 0 ? Accumulate::yes : accumulate;
    backend_.linear({rows ? x : x.slice_columns(column, width), part.weight, part.bias,
                     rows ? y.slice_columns(column, width) : y, each, row_invariant_},
                    stream_);
    column += width;
  }
}

void Model::norm(const TensorView& x, const TensorView& weight, const TensorView& out) {
  const ScopedSpan span(recorder_, "rms_norm", Kind::compute);
  backend_.rms_norm({x, weight, static_cast<float>(config_.rms_norm_eps), out}, stream_);
}

}  // namespace pecia::model
