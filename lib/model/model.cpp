// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model.hpp"

#include <algorithm>
#include <bit>
#include <optional>

#include "lib/parallel/virtual_ranks.hpp"

namespace pecia::model {

using kernels::Accumulate;
using report::Kind;
using report::ScopedSpan;

namespace {

/// [rows, heads, head_dim] → [rows, heads · head_dim]
TensorView flat(const TensorView& heads) {
  return heads.reshape({heads.rows(), heads.row_elements()});
}

/// fp32 where the layers' weights are of several types.
DType operand_of(const WeightViews& weights, const kernels::Backend& backend) {
  const DType first = weights.layers.front().q.parts.front().weight.dtype();
  for (const LayerWeights& layer : weights.layers)
    for (const LinearWeight* weight :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      for (const LinearWeight::Part& part : weight->parts)
        if (part.weight.dtype() != first) return DType::fp32;
  return backend.operand_type(first);
}

}  // namespace

Model::Model(const ModelConfig& config, const WeightViews& weights,
             const context::ReplicaGroups& groups, const context::Compute& compute,
             kernels::RowInvariant row_invariant)
    : config_(config),
      weights_(weights),
      compute_(compute),
      rotary_(config),
      tensor_(groups, compute, row_invariant),
      gather_(config, weights, groups, compute),
      operand_(operand_of(weights, compute.backend)),
      row_invariant_(row_invariant),
      splits_(row_invariant == kernels::RowInvariant::yes
                  ? parallel::layout_splits(config.num_heads, config.ffn)
                  : 1),
      part_sums_(compute.buffers(groups.tp->size())),
      stays_on_stream_(context::stays_on_stream(groups)),
      pinned_cos_(compute.device, device::Memory::pinned),
      pinned_sin_(compute.device, device::Memory::pinned),
      tables_sent_(compute.device.make_event()),
      marks_(compute.buffer()),
      hidden_(compute.buffer()),
      normed_(compute.buffer()),
      q_(compute.buffer()),
      k_(compute.buffer()),
      v_(compute.buffer()),
      mixed_(compute.buffer()),
      gate_(compute.buffer()),
      up_(compute.buffer()),
      activated_(compute.buffer()),
      cos_(compute.buffer()),
      sin_(compute.buffer()),
      output_(compute.buffer()),
      logits_(compute.buffer()) {
  const parallel::WeightCut cut = weight_cut(parallel::Sharding::shift, groups.place);
  if (cut == weights.part) return;
  for (const LayerWeights& held : weights.layers)
    shifted_.push_back(cut_layer(held, config, weights.part, cut));
}

int64_t Model::activation_bytes_per_row(const ModelConfig& config) {
  const int64_t heads = 2 * config.num_heads + 2 * config.num_kv_heads;  // q, mixed, k, v
  const int64_t partial = config.num_heads * config.head_dim;  // the ring's partial output
  const int64_t rows = 3 * config.hidden;  // hidden states, normed, and products to be summed
  return size_of(DType::fp32) *
         (rows + heads * config.head_dim + partial + 2 * config.ffn + config.rope.rotary_dim);
}

void Model::forward(const Rows& rows, context::Attention& attention) {
  const ScopedSpan span(compute_.recorder, "forward", Kind::phase);
  const auto count = static_cast<int64_t>(rows.tokens.size());
  PECIA_CHECK(count == static_cast<int64_t>(attention.positions().size()) &&
                  rows.rope_lengths.size() == rows.tokens.size(),
              "{} tokens, {} positions, {} lengths", count, attention.positions().size(),
              rows.rope_lengths.size());
  const parallel::Sharding sharding = attention.sharding();
  tensor_.begin_pass(sharding, count);
  const bool gathered = sharding == parallel::Sharding::gathered;
  if (gathered) gather_.begin_pass();

  const parallel::RowRange linear = tensor_.rows().linear;
  const int64_t half = rotary_.rotary_dim() / 2;
  const Pass pass{attention,
                  hidden_.tensor(DType::fp32, {tensor_.rows().num_own(), config_.hidden}),
                  marks_.tensor(DType::int32, {tensor_.rows().num_own()}),
                  normed_.tensor(operand_, {linear.size(), config_.hidden}),
                  cos_.tensor(DType::fp32, {linear.size(), half}),
                  sin_.tensor(DType::fp32, {linear.size(), half})};
  make_tables(rows, pass);

  // Where the host waited for transfers, what is held back meanwhile would begin later.
  constexpr int64_t most_rows_of_a_step = 256;
  const bool as_step = stays_on_stream_ && count <= most_rows_of_a_step;
  std::optional<report::ScopedGroup> ops;  // marks between them would cut a step up
  if (as_step || !compute_.recorder.keeps_ops()) ops.emplace(compute_.recorder, "layers");
  std::optional<kernels::Step> step;
  if (as_step) step.emplace(compute_.backend, compute_.stream);
  compute_.device.zero(pass.marks.data(), pass.marks.rows() * size_of(DType::int32),
                       compute_.stream);
  embed(rows, pass.hidden);
  for (int block = 0; block < tensor_.num_blocks(); ++block)
    advance(block, {}, attention_norm(0), pass);
  for (int64_t index = 0; index < config_.layers; ++index) {
    compute_.recorder.set_layer(static_cast<int32_t>(index));
    if (gathered)
      layer(index, gather_.layer(index), pass);
    else
      layer(index, tensor_.cut() == weights_.part ? weights_.layers[index] : shifted_[index], pass);
  }
  for (int block = 0; block < tensor_.num_blocks(); ++block) tensor_.wait_sum(block);
  if (step) step->end();
  compute_.recorder.set_layer(-1);
}

void Model::make_tables(const Rows& rows, const Pass& pass) {
  const ScopedSpan span(compute_.recorder, "rope_tables", Kind::compute);
  const parallel::RowRange linear = tensor_.rows().linear;
  tables_sent_->synchronize();  // those of the pass before
  const TensorView cos = pinned_cos_.tensor(DType::fp32, {linear.size(), pass.cos.size(1)});
  const TensorView sin = pinned_sin_.tensor(DType::fp32, {linear.size(), pass.sin.size(1)});
  rotary_.tables(std::span(pass.attention.positions()).subspan(linear.begin, linear.size()),
                 std::span(rows.rope_lengths).subspan(linear.begin, linear.size()), cos, sin);
  compute_.copy(cos, pass.cos);
  compute_.copy(sin, pass.sin);
  tables_sent_->record(compute_.stream);
}

void Model::embed(const Rows& rows, const TensorView& hidden) {
  const parallel::RowRange held = vocab_part(config_, weights_.part);
  const parallel::RowRange part = vocab_part(config_, tensor_.vocab_cut());
  tensor_.embed(hidden, [&](const TensorParallel::Rows& ranges, const TensorView& to) {
    const ScopedSpan span(compute_.recorder, "embedding", Kind::compute);
    int64_t begin = 0;
    for (const parallel::RowRange& range : ranges) {
      compute_.backend.embedding(
          {weights_.embedding.slice_rows(part.begin - held.begin, part.size()),
           std::span(rows.tokens).subspan(range.begin, range.size()),
           to.slice_rows(begin, range.size()), part.begin},
          compute_.stream);
      begin += range.size();
    }
  });
}

Model::Outputs Model::outputs(std::span<const int64_t> rows) {
  Outputs outputs;
  std::vector<int64_t> counts;
  std::vector<int32_t> own;  // rows of hidden_
  for (const parallel::ShardedRows& theirs : tensor_.vocab_rows()) {
    counts.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (theirs.own_index(rows[i]) < 0) continue;
      ++counts.back();
      outputs.which.push_back(static_cast<int64_t>(i));
    }
  }
  for (const int64_t row : rows)
    if (const int64_t index = tensor_.rows().own_index(row); index >= 0)
      own.push_back(static_cast<int32_t>(index));
  const auto count = static_cast<int64_t>(own.size());
  const TensorView hidden = hidden_.tensor(DType::fp32, {tensor_.rows().num_own(), config_.hidden});
  const TensorView output = output_.tensor(DType::fp32, {count, config_.hidden});
  compute_.backend.embedding({hidden, own, output, 0}, compute_.stream);  // a table of rows
  norm(output, weights_.final_norm, output);
  outputs.hidden = tensor_.gather_outputs(output, counts);
  return outputs;
}

Model::Norm Model::attention_norm(int64_t layer) const {
  if (layer == config_.layers) return {};
  return {weights_.layers[layer].attention_norm, static_cast<int32_t>(2 * layer + 1)};
}

Model::Norm Model::ffn_norm(int64_t layer) const {
  return {weights_.layers[layer].ffn_norm, static_cast<int32_t>(2 * layer + 2)};
}

std::vector<std::string> Model::broken_at(std::span<const int64_t> rows) {
  const int64_t own = tensor_.rows().num_own();
  std::vector<int32_t> marks(own);
  compute_.device.copy(marks.data(), marks_.data(), own * size_of(DType::int32), compute_.stream);
  compute_.stream.synchronize();
  std::vector<std::string> places;
  for (const int64_t row : rows) {
    const int64_t index = tensor_.rows().own_index(row);
    const int32_t mark = index < 0 ? 0 : marks[index];
    const int32_t layer = mark / 2 - 1 + mark % 2;  // that the norm of this number belongs to
    if (mark == 0)
      places.emplace_back();
    else if (mark == 1)
      places.emplace_back("the embedding");
    else if (mark % 2 == 0)
      places.push_back(fmt::format("attention of layer {}", layer));
    else
      places.push_back(fmt::format("the FFN of layer {}", layer - 1));
  }
  return places;
}

void Model::layer(int64_t index, const LayerWeights& weights, const Pass& pass) {
  const int64_t rows = pass.normed.rows(), head_dim = config_.head_dim;
  const auto heads = [&](device::Buffer& buffer, const LinearWeight& weight) {
    return buffer.tensor(DType::fp32, {rows, weight.out() / head_dim, head_dim});
  };
  const TensorView q = heads(q_, weights.q), k = heads(k_, weights.k), v = heads(v_, weights.v);
  const TensorView mixed = heads(mixed_, weights.q);

  // Attention alone needs all rows; what is before and after it goes block by block.
  const int blocks = tensor_.num_blocks();
  for (int block = 0; block < blocks; ++block) {
    advance(block, attention_norm(index), {}, pass);
    project(weights, block, pass, q, k, v);
  }
  pass.attention.run(index, q, mixed);
  for (int block = 0; block < blocks; ++block) {
    advance(block, {}, ffn_norm(index), pass);
    const TensorView x = tensor_.block_of(flat(mixed), block);
    tensor_.add_product(block, tensor_.own_of(pass.hidden, block),
                        [&](const TensorView& to, Accumulate accumulate) {
                          linear("o_proj", x, weights.o, to, accumulate, splits());
                        });
  }
  for (int block = 0; block < blocks; ++block) {
    advance(block, ffn_norm(index), attention_norm(index + 1), pass);
    ffn(weights, block, pass);
  }
}

void Model::project(const LayerWeights& weights, int block, const Pass& pass, const TensorView& q,
                    const TensorView& k, const TensorView& v) {
  tensor_.wait_gather(block);
  const TensorView x = tensor_.block_of(pass.normed, block);
  const TensorView cos = tensor_.block_of(pass.cos, block);
  const TensorView sin = tensor_.block_of(pass.sin, block);
  const auto make = [&](const char* name, const LinearWeight& weight, const TensorView& all) {
    const TensorView heads = tensor_.block_of(all, block);
    linear(name, x, weight, flat(heads));
    return heads;
  };
  const auto turn = [&](const TensorView& heads, const TensorView& norm_weight) {
    const TensorView each = heads.reshape({heads.rows() * heads.size(1), config_.head_dim});
    if (norm_weight) norm(each, norm_weight, each);
    const ScopedSpan span(compute_.recorder, "rope", Kind::compute);
    compute_.backend.rope({heads, cos, sin, config_.rope.pairs}, compute_.stream);
  };
  turn(make("k_proj", weights.k, k), weights.k_norm);
  make("v_proj", weights.v, v);
  if (block + 1 == tensor_.num_blocks()) pass.attention.start_keys(k, v);  // to travel beside q
  turn(make("q_proj", weights.q, q), weights.q_norm);
}

void Model::ffn(const LayerWeights& weights, int block, const Pass& pass) {
  tensor_.wait_gather(block);
  const TensorView x = tensor_.block_of(pass.normed, block);
  const TensorView gate = gate_.tensor(DType::fp32, {x.rows(), weights.gate.out()});
  const TensorView up = up_.tensor(DType::fp32, {x.rows(), weights.up.out()});
  linear("gate_proj", x, weights.gate, gate);
  linear("up_proj", x, weights.up, up);
  const TensorView activated =
      operand_ == DType::fp32 ? gate : activated_.tensor(operand_, {x.rows(), gate.size(1)});
  {
    const ScopedSpan span(compute_.recorder, "swiglu", Kind::compute);
    compute_.backend.gated_activation({gate, up, activated}, compute_.stream);
  }
  tensor_.add_product(block, tensor_.own_of(pass.hidden, block),
                      [&](const TensorView& to, Accumulate accumulate) {
                        linear("down_proj", activated, weights.down, to, accumulate, splits());
                      });
}

/// Called before each block's product of a stage (QKV, o_proj, FFN). Takes on the block whose sum
/// has had its products to hide behind: waits for it, makes of it the input of its next product by
/// that one's norm, and starts gathering it. With four blocks and two products before a sum:
///
///     before block     0                        1             2             3
///     takes on         1 of the stage before    2 of it       3 of it       0 of this stage
///
/// `own`: of this stage, absent after attention; `next`: of the stage after it, absent before
/// attention.
void Model::advance(int block, const Norm& own, const Norm& next, const Pass& pass) {
  const int due = block - 1 - tensor_.products_before_sum();
  const bool this_stage = due >= 0;
  const Norm& of = this_stage ? next : own;
  if (!of.weight) return;
  const int taken = this_stage ? due : due + tensor_.num_blocks();
  tensor_.wait_sum(taken);
  const parallel::ShardedRows& rows = tensor_.rows();
  norm(tensor_.own_of(pass.hidden, taken), of.weight,
       pass.normed.slice_rows(rows.own[taken].begin - rows.linear.begin, rows.own[taken].size()),
       tensor_.own_of(pass.marks, taken), of.number);
  tensor_.start_gather(taken, pass.normed);
}

void Model::logits(const TensorView& hidden, const TensorView& out) {
  if (vocab_parts() == 1) return linear("lm_head", hidden, head_part(), out);
  tensor_.exchange_logits(logits_part(hidden), out);
}

parallel::RowRange Model::vocab_range() const {
  return vocab_part(config_, tensor_.vocab_cut());
}

LinearWeight Model::head_part() const {
  const parallel::RowRange held = vocab_part(config_, weights_.part);
  const parallel::RowRange part = vocab_range();
  return slice_rows(weights_.head, part.begin - held.begin, part.size());
}

TensorView Model::logits_part(const TensorView& hidden) {
  const TensorView part = logits_.tensor(DType::fp32, {hidden.rows(), vocab_range().size()});
  linear("lm_head", hidden, head_part(), part);
  return part;
}

void Model::linear(const char* name, const TensorView& x, const LinearWeight& weight,
                   const TensorView& y, Accumulate accumulate, int splits) {
  const ScopedSpan span(compute_.recorder, name, Kind::compute, weight.bytes(),
                        2.0 * static_cast<double>(x.rows()) * static_cast<double>(x.size(1)) *
                            static_cast<double>(y.size(1)));
  if (weight.blocks == LinearWeight::Blocks::columns) {
    const TensorView sum = part_sums_.back().tensor(DType::fp32, {y.rows(), y.size(1)});
    const bool adds = accumulate == Accumulate::yes;
    const auto parts = static_cast<int>(weight.parts.size());
    sum_columns(x, weight.parts, share_of_splits(splits, parts), 0, adds ? sum : y);
    if (adds) compute_.backend.add({sum, y}, compute_.stream);
    return;
  }
  int64_t column = 0;
  for (const LinearWeight::Part& part : weight.parts) {
    const int64_t width = part.weight.rows();
    compute_.backend.linear({x, part.weight, part.bias, y.slice_columns(column, width), accumulate,
                             row_invariant_, splits, part.scales},
                            compute_.stream);
    column += width;
  }
}

/// Products of blocks of columns, each in its share of the splits, added in the order in which
/// ranks would add them.
void Model::sum_columns(const TensorView& x, std::span<const LinearWeight::Part> parts, int splits,
                        size_t depth, const TensorView& y) {
  if (parts.size() == 1) {
    const LinearWeight::Part& part = parts.front();
    return compute_.backend.linear(
        {x, part.weight, part.bias, y, Accumulate::no, row_invariant_, splits, part.scales},
        compute_.stream);
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  const TensorView right = part_sums_[depth].tensor(DType::fp32, {y.rows(), y.size(1)});
  const int64_t column = static_cast<int64_t>(left) * parts.front().weight.size(1);
  sum_columns(x.slice_columns(0, column), parts.first(left), splits, depth + 1, y);
  sum_columns(x.slice_columns(column, x.size(1) - column), parts.subspan(left), splits, depth + 1,
              right);
  compute_.backend.add({right, y}, compute_.stream);
}

void Model::norm(const TensorView& x, const TensorView& weight, const TensorView& out,
                 const TensorView& marks, int32_t mark) {
  const ScopedSpan span(compute_.recorder, "rms_norm", Kind::compute);
  compute_.backend.rms_norm({x, weight, static_cast<float>(config_.rms_norm_eps), out, marks, mark},
                            compute_.stream);
}

}  // namespace pecia::model
