// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/model/config/stage.hpp"
#include "lib/model/layers/attention_mixer.hpp"
#include "lib/model/layers/latent_mixer.hpp"
#include "lib/model/layers/recurrent_mixer.hpp"

namespace pecia::model {

using report::Kind;
using report::ScopedSpan;

namespace {

std::unique_ptr<Mixer> make_mixer(const ModelConfig& config, const attention::Compute& compute,
                                  Products& products, TensorParallel& tensor) {
  if (config.latent) return std::make_unique<LatentMixer>(config, compute, products, tensor);
  return std::make_unique<AttentionMixer>(config, compute, products, tensor);
}

std::unique_ptr<Mixer> make_recurrent_mixer(const ModelConfig& config, const WeightViews& weights,
                                            const attention::ReplicaGroups& groups,
                                            const attention::Compute& compute, Products& products,
                                            TensorParallel& tensor,
                                            recurrence::RecurrentStates* states,
                                            kernels::RowInvariant row_invariant) {
  if (!config.recurrent) return nullptr;
  PECIA_CHECK(states != nullptr, "recurrent layers without memory for their states");
  return std::make_unique<RecurrentMixer>(config, weights, groups, compute, products, tensor,
                                          *states, row_invariant);
}

/// Elements of a row that attention holds: queries, keys, values, and what it gives.
int64_t attention_elements(const ModelConfig& config) {
  const int64_t heads = config.num_heads;
  if (config.latent) {
    const int64_t partial = heads * config.value_dim();  // the ring's partial output
    const LatentConfig& latent = *config.latent;
    return latent.key_dim() + 2 * latent.q_rank + partial +
           heads * (latent.query_dim() + latent.key_dim() + latent.kv_rank + latent.value_dim);
  }
  const auto elements = [&](const KvHeads& of) {
    const int64_t gate = config.attention_gate ? heads * of.dim : 0;
    return 2 * (heads + of.count) * of.dim + heads * of.dim + gate;
  };
  return std::max(elements({config.num_kv_heads, config.head_dim}),
                  elements(config.widest_heads()));
}

int64_t mixer_elements(const ModelConfig& config) {
  const int64_t attention = attention_elements(config);
  return config.recurrent ? std::max(attention, RecurrentMixer::elements_per_row(*config.recurrent))
                          : attention;
}

/// The same of a second embedding.
int64_t second_elements(const ModelConfig& config) {
  const int64_t width = config.second.width;
  return width == 0 ? 0 : (config.layers + 1) * width + config.hidden;
}

}  // namespace

Model::Model(const ModelConfig& config, const WeightViews& weights,
             const attention::ReplicaGroups& groups, const attention::Compute& compute,
             kernels::RowInvariant row_invariant, recurrence::RecurrentStates* states)
    : config_(config),
      weights_(weights),
      compute_(compute),
      rotations_(config, compute),
      tensor_(groups, compute, row_invariant),
      gather_(config, weights, groups, compute),
      products_(config, weights, compute, row_invariant, groups.tp->size()),
      mixer_(make_mixer(config, compute, products_, tensor_)),
      recurrent_mixer_(make_recurrent_mixer(config, weights, groups, compute, products_, tensor_,
                                            states, row_invariant)),
      ffn_(config, compute, products_, tensor_),
      mixture_(config, groups, compute, products_, tensor_, ffn_),
      norms_(norms_of(weights, config.stage)),
      stays_on_stream_(attention::stays_on_stream(groups)),
      marks_(compute.buffer()),
      hidden_(compute.buffer()),
      normed_(compute.buffer()),
      output_(compute.buffer()),
      logits_(compute.buffer()),
      second_(compute.buffer()),
      second_gate_(compute.buffer()),
      second_up_(compute.buffer()),
      dense_(compute.buffer()),
      expert_rows_(compute.buffer()),
      routed_rows_(compute.buffer()),
      kept_(compute),
      link_(groups, compute) {
  PECIA_CHECK(config.stage.count == groups.stages && config.stage.index == groups.stage,
              "the model of stage {} of {} on a rank of stage {} of {}", config.stage.index,
              config.stage.count, groups.stage, groups.stages);
  const parallel::WeightCut cut = weight_cut(parallel::Sharding::shift, groups.place);
  if (cut == weights.part) return;
  for (int64_t layer = 0; layer < config.layers; ++layer)
    shifted_.push_back(cut_layer(weights.layers[layer], config, layer, weights.part, cut));
}

/// Marks and layers are numbered in the whole model.
std::vector<Model::LayerNorms> Model::norms_of(const WeightViews& weights,
                                               const ModelStage& stage) {
  constexpr int norms_of_layer = 4;
  const std::string of_stage = stage.count > 1 ? ", " + to_text(stage) : "";
  std::vector<LayerNorms> norms;
  std::string before = stage.embeds() ? "the embedding" : "the stage before " + to_text(stage);
  auto mark = static_cast<int32_t>(norms_of_layer * stage.begin);
  const auto norm = [&](const TensorView& weight) { return Norm{weight, ++mark, before, {}}; };
  for (const LayerWeights& layer : weights.layers) {
    const auto number = std::ssize(norms);
    LayerNorms& of = norms.emplace_back();
    const bool mixes = layer.has_attention || layer.recurrent;
    of.mixer = norm(layer.attention_norm);
    if (mixes)
      before = fmt::format("{} of layer {}{}", layer.recurrent ? "the recurrence" : "attention",
                           stage.begin + number, of_stage);
    of.after_mixer = norm(layer.post_attention_norm);
    of.feed_forward = norm(layer.ffn_norm);
    if (layer.has_ffn || !layer.mixture.router.parts.empty())
      before = fmt::format("the FFN of layer {}{}", stage.begin + number, of_stage);
    of.after_feed_forward = norm(layer.post_ffn_norm);
    (mixes ? of.mixer : of.feed_forward).begins = number;
  }
  return norms;
}

int64_t Model::activation_bytes_per_row(const ModelConfig& config, DType gated) {
  const int64_t sinks = config.attention_sinks ? config.num_heads * config.head_dim : 0;
  const int64_t squares =
      config.qk_norm == QkNorm::all_heads ? config.num_heads + config.num_kv_heads : 0;
  // Hidden states, normed rows, products to be summed; and again for the experts beside a dense
  // feed-forward.
  const int64_t rows = (config.dense_beside_experts ? 6 : 3) * config.hidden;
  const int64_t before_down = config.matrices_of_ffn() - 1;
  const int64_t of_ffn = gated == DType::fp32 || before_down == 1
                             ? before_down * size_of(DType::fp32)
                             : 3 * size_of(gated);  // gate, up and their activation
  const int64_t widest = std::max(config.ffn, config.sharing_ffn);
  const int64_t dense = config.num_layers(FeedForward::dense) > 0 ? of_ffn * widest : 0;
  const int64_t mixture =
      config.experts ? size_of(DType::fp32) * (config.experts->count +
                                               2 * config.experts->per_token + config.hidden) +
                           of_ffn * config.experts->shared_ffn
                     : 0;
  return size_of(DType::fp32) * (rows + mixer_elements(config) + second_elements(config) +
                                 LayerRotations::width(config) + squares + sinks) +
         std::max(dense, mixture);
}

void Model::forward(const Rows& rows, attention::Attention& attention) {
  const ScopedSpan span(compute_.recorder, "forward", Kind::phase);
  const auto count = static_cast<int64_t>(rows.tokens.size());
  PECIA_CHECK(count == static_cast<int64_t>(attention.positions().size()) &&
                  rows.rope_lengths.size() == rows.tokens.size(),
              "{} tokens, {} positions, {} lengths", count, attention.positions().size(),
              rows.rope_lengths.size());
  const parallel::Sharding sharding = attention.sharding();
  tensor_.begin_pass(sharding, count);
  mixture_.begin_pass(sharding, count);
  const bool gathered = sharding == parallel::Sharding::gathered;
  if (gathered) gather_.begin_pass();

  const parallel::RowRange linear = tensor_.rows().linear;
  PassTensors pass{
      attention, hidden_.tensor(DType::fp32, {tensor_.rows().num_own(), config_.hidden}),
      marks_.tensor(DType::int32, {tensor_.rows().num_own()}),
      normed_.tensor(operand_type(), {linear.size(), config_.hidden}),
      config_.second.width > 0
          ? second_.tensor(DType::fp32,
                           {tensor_.rows().num_own(), config_.layers * config_.second.width})
          : TensorView()};

  if (!config_.stage.embeds()) link_.receive(pass.hidden);

  // When the host waits for transfers, work that is held back would begin late. So only small
  // passes that stay on the stream are held back as a step. All ranks decide alike, since they
  // agree on the transfers in it.
  constexpr int64_t most_rows_of_a_step = 256;
  const bool states_travel = recurrent_mixer_ && attention.ring().size() > 1;
  const bool as_step = stays_on_stream_ && attention.may_be_step() && !states_travel &&
                       !mixture_.waits_for_device() && attention.most_rows() <= most_rows_of_a_step;
  std::optional<report::ScopedGroup> ops;  // device time marks between the ops would cut a step up
  if (as_step || !compute_.recorder.keeps_ops()) ops.emplace(compute_.recorder, "layers");
  std::optional<kernels::Step> step;
  if (as_step) step.emplace(compute_.backend, compute_.stream);
  // A GPU replays a recorded step for passes of the same shapes, whichever rows are wanted.
  const bool recorded = as_step && compute_.backend.gains_by_fewer_ops();
  const bool some_end =
      !recorded && ends() && mixes(config_.last_mixing_layer()) && std::ssize(rows.wanted) < count;
  if (some_end) pass.wanted = &rows.wanted;
  compute_.device.zero(pass.marks.data(), pass.marks.rows() * size_of(DType::int32),
                       compute_.stream);
  if (recurrent_mixer_) recurrent_mixer_->begin_pass(attention);
  rotations_.make(std::span(attention.positions()).subspan(linear.begin, linear.size()),
                  std::span(rows.rope_lengths).subspan(linear.begin, linear.size()));
  if (config_.second.width > 0) embed_second(rows, pass.second);
  // Hidden states are held divided by the residual scale: then what blocks add needs no factor.
  if (config_.stage.embeds())
    embed(rows, weights_.embedding,
          static_cast<float>(config_.embedding_scale / config_.residual_scale), pass.hidden);
  for (int block = 0; block < tensor_.num_blocks(); ++block)
    advance(block, nullptr, first_norm(0), pass);
  for (int64_t index = 0; index < config_.layers; ++index) {
    compute_.recorder.set_layer(static_cast<int32_t>(config_.stage.begin + index));
    if (gathered)
      layer(index, gather_.layer(index), pass);
    else
      layer(index, tensor_.cut() == weights_.part ? weights_.layers[index] : shifted_[index], pass);
  }
  for (int block = 0; block < tensor_.num_blocks(); ++block) {
    tensor_.wait_sum(block);
    finish_layer(config_.layers - 1, block, pass);
  }
  last_hidden_ = pass.hidden, last_marks_ = pass.marks;
  went_on_.reset();
  if (some_end) went_on_ = rows.wanted;
  if (step) step->end();
  compute_.recorder.set_layer(-1);
  if (!ends()) link_.send(pass.hidden);
}

void Model::embed(const Rows& rows, const TensorView& table, float scale, const TensorView& out) {
  const parallel::RowRange held = unit_part(config_, CutUnit::vocab, weights_.part);
  const parallel::RowRange part = vocab_range();
  tensor_.embed(out, [&](const TensorParallel::Rows& ranges, const TensorView& to) {
    const ScopedSpan span(compute_.recorder, "embedding", Kind::compute);
    int64_t begin = 0;
    for (const parallel::RowRange& range : ranges) {
      compute_.backend.embedding({table.slice_rows(part.begin - held.begin, part.size()),
                                  std::span(rows.tokens).subspan(range.begin, range.size()),
                                  to.slice_rows(begin, range.size()), part.begin, scale},
                                 compute_.stream);
      begin += range.size();
    }
  });
}

void Model::embed_second(const Rows& rows, const TensorView& second) {
  embed(rows, weights_.second_embedding, std::sqrt(static_cast<float>(config_.second.width)),
        second);
  for (int block = 0; block < tensor_.num_blocks(); ++block) tensor_.wait_sum(block);
}

/// Adds what layers see of the first embedding, which is in the hidden states, to the second one.
void Model::begin_second(int block, const PassTensors& pass) {
  const TensorView hidden = tensor_.own_of(pass.hidden, block);
  const TensorView second = tensor_.own_of(pass.second, block);
  const int64_t width = config_.second.width;
  const TensorView seen = second_gate_.tensor(DType::fp32, {hidden.rows(), width});
  for (int64_t index = 0; index < config_.layers; ++index) {
    products_.linear("second_projection", hidden,
                     slice_rows(weights_.second_projection, index * width, width), seen);
    products_.norm_scaled(seen, 1 / std::sqrt(static_cast<double>(config_.hidden)),
                          weights_.second_norm, seen);
    compute_.backend.add({seen, second.slice_columns(index * width, width),
                          static_cast<float>(std::numbers::sqrt2 / 2)},
                         compute_.stream);
  }
}

/// After the sums of a block are in the hidden states: those of the embedding, with index -1, or of
/// a layer. Every rank does this for its own rows.
void Model::finish_layer(int64_t index, int block, const PassTensors& pass) {
  if (config_.second.width == 0) return;
  if (index < 0) return begin_second(block, pass);
  const LayerWeights& layer = weights_.layers[index];
  const TensorView hidden = tensor_.own_of(pass.hidden, block);
  const int64_t width = config_.second.width;
  const TensorView given = tensor_.own_of(pass.second, block).slice_columns(index * width, width);
  const TensorView gate = second_gate_.tensor(DType::fp32, {hidden.rows(), width});
  const TensorView up = second_up_.tensor(DType::fp32, {hidden.rows(), config_.hidden});
  products_.linear("second_gate", hidden, layer.second->gate, gate);
  compute_.backend.gated_activation({gate, given, gate, config_.activation}, compute_.stream);
  products_.linear("second_up", gate, layer.second->up, up);
  products_.norm(up, layer.second->norm, up);
  compute_.backend.add({up, hidden, layer.scale}, compute_.stream);
}

Model::Outputs Model::outputs(std::span<const int64_t> rows) {
  Outputs outputs;
  std::vector<int64_t> counts;
  std::vector<int32_t> own;  // indices of rows in last_hidden_
  for (const parallel::ShardedRows& theirs : tensor_.vocab_rows()) {
    counts.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (theirs.own_index(number_of(rows[i])) < 0) continue;
      ++counts.back();
      outputs.which.push_back(static_cast<int64_t>(i));
    }
  }
  for (const int64_t row : rows)
    if (const int64_t index = tensor_.rows().own_index(number_of(row)); index >= 0)
      own.push_back(static_cast<int32_t>(index));
  outputs.hidden = tensor_.gather_outputs(normed_rows(own), counts);
  return outputs;
}

/// The final norm of rows of the last hidden states.
TensorView Model::normed_rows(const std::vector<int32_t>& own) {
  const auto count = static_cast<int64_t>(own.size());
  const TensorView output = output_.tensor(DType::fp32, {count, config_.hidden});
  compute_.backend.embedding({last_hidden_, own, output, 0}, compute_.stream);  // gathers rows
  products_.norm_hidden(output, weights_.final_norm, output);
  return output;
}

Model::Outputs Model::own_outputs(std::span<const int64_t> rows) {
  Outputs outputs;
  std::vector<int32_t> own;  // indices of rows in last_hidden_
  for (size_t i = 0; i < rows.size(); ++i)
    if (const int64_t index = tensor_.rows().own_index(number_of(rows[i])); index >= 0) {
      outputs.which.push_back(static_cast<int64_t>(i));
      own.push_back(static_cast<int32_t>(index));
    }
  if (!rows_are_cut()) {  // the ranks that share the vocabulary have the same rows
    const parallel::RowRange mine = tensor_.logits_share(std::ssize(own));
    outputs.which = {outputs.which.begin() + mine.begin, outputs.which.begin() + mine.end};
    own = {own.begin() + mine.begin, own.begin() + mine.end};
  }
  outputs.hidden = normed_rows(own);
  return outputs;
}

const Model::Norm* Model::first_norm(int64_t layer) const {
  if (layer == config_.layers) return nullptr;
  return mixes(layer) ? &norms_[layer].mixer : &norms_[layer].feed_forward;
}

const std::string& Model::place_of(int32_t mark) const {
  for (const LayerNorms& layer : norms_)
    for (const Norm* norm :
         {&layer.mixer, &layer.after_mixer, &layer.feed_forward, &layer.after_feed_forward})
      if (norm->mark == mark) return norm->before;
  fail<InvalidArgument>("no norm has the mark {}", mark);
}

std::vector<Model::BrokenPlace> Model::broken_at(std::span<const int64_t> rows) {
  const int64_t own = tensor_.rows().num_own();
  std::vector<int32_t> marks(own);
  compute_.device.copy(marks.data(), last_marks_.data(), own * size_of(DType::int32),
                       compute_.stream);
  compute_.stream.synchronize();
  std::vector<BrokenPlace> places;
  for (const int64_t row : rows) {
    const int64_t index = tensor_.rows().own_index(number_of(row));
    const int32_t mark = index < 0 ? 0 : marks[index];
    places.push_back({mark, mark == 0 ? "" : place_of(mark)});
  }
  return places;
}

TensorView Model::normed(int block, const PassTensors& pass) {
  tensor_.wait_gather(block);
  return tensor_.block_of(pass.normed, block);
}

int64_t Model::number_of(int64_t row) const {
  if (!went_on_) return row;
  const auto found = std::ranges::lower_bound(*went_on_, row);
  PECIA_CHECK(found != went_on_->end() && *found == row, "row {} was not wanted", row);
  return found - went_on_->begin();
}

/// What other rows have made of the last layer that mixes, its keys, is in the cache.
void Model::go_on_with_wanted(Mixer& mixer, PassTensors& pass) {
  const parallel::ShardedRows& rows = tensor_.rows();
  mixer.keep(places_in(std::span(&rows.linear, 1), *pass.wanted));
  kept_.keep(places_in(rows.own, *pass.wanted), {&pass.hidden, &pass.marks, &pass.second});
  tensor_.go_on_with(*pass.wanted);
  mixture_.go_on_with(*pass.wanted);
  pass.normed = pass.normed.slice_rows(0, tensor_.rows().linear.size());
}

void Model::layer(int64_t index, const LayerWeights& weights, PassTensors& pass) {
  if (mixes(index)) mix(index, weights, pass);
  if (!feeds(index)) return;
  if (config_.dense_beside_experts)
    feed_forwards(index, weights, pass);
  else
    feed_forward(index, weights, pass);
}

void Model::mix(int64_t index, const LayerWeights& weights, PassTensors& pass) {
  const int blocks = tensor_.num_blocks();
  const auto block_of = [&](const RotationTables& all, int block) {
    if (!all.cos) return RotationTables{};
    return RotationTables{tensor_.block_of(all.cos, block), tensor_.block_of(all.sin, block),
                          all.scale ? tensor_.block_of(all.scale, block) : TensorView()};
  };
  const Rotation rotation = config_.pattern[index].rotation;
  const RotationTables of_keys = rotations_.of(rotation);
  const RotationTables of_queries = rotations_.of_queries(rotation);
  const LayerNorms& norms = norms_[index];
  const Norm* const next = feeds(index) ? &norms.feed_forward : first_norm(index + 1);
  Mixer& mixer = config_.mixer(index) == MixerKind::recurrence ? *recurrent_mixer_ : *mixer_;
  const auto project = [&](int block) {
    mixer.project(block,
                  {normed(block, pass), block_of(of_keys, block), block_of(of_queries, block)},
                  pass.attention);
  };
  const auto project_output = [&](int block) {
    mixer.project_output(block, tensor_.own_of(pass.hidden, block),
                         change_by(norms.after_mixer, block, pass));
  };
  const bool some_go_on = pass.wanted != nullptr && index == config_.last_mixing_layer();
  mixer.begin(index, weights, pass.normed.rows(), pass.attention);
  if (!some_go_on && pass.attention.runs_blocks()) {
    for (int block = 0; block < blocks; ++block) {
      advance(block, first_norm(index), next, pass);
      project(block);
      mixer.mix_block(index, block, pass.attention);
      project_output(block);
    }
    return;
  }
  // The mixing needs all rows at once. The stages before and after it go block by block.
  for (int block = 0; block < blocks; ++block) {
    advance(block, first_norm(index), nullptr, pass);
    project(block);
  }
  mixer.mix(index, pass.attention);
  if (some_go_on) go_on_with_wanted(mixer, pass);
  for (int block = 0; block < blocks; ++block) {
    advance(block, nullptr, next, pass);
    project_output(block);
  }
}

void Model::feed_forward(int64_t index, const LayerWeights& weights, const PassTensors& pass) {
  const LayerNorms& norms = norms_[index];
  for (int block = 0; block < tensor_.num_blocks(); ++block) {
    advance(block, &norms.feed_forward, first_norm(index + 1), pass);
    TensorParallel::Change change = change_by(norms.after_feed_forward, block, pass);
    if (config_.second.width == 0) change.scale = weights.scale;  // else finish_layer
    const TensorView rows = normed(block, pass), hidden = tensor_.own_of(pass.hidden, block);
    if (config_.feed_forward(index) == FeedForward::experts)
      mixture_.run(weights.mixture, block, rows, rows, hidden, change);
    else
      ffn_.run(weights.ffn, block, rows, hidden, change);
  }
}

/// Both kinds of feed-forward, in two stages: first the dense one of all blocks, whose normed sum
/// waits in `dense_`, and then the experts, with whose normed sum it is added.
void Model::feed_forwards(int64_t index, const LayerWeights& weights, const PassTensors& pass) {
  const LayerNorms& norms = norms_[index];
  const MixtureWeights& mixture = weights.mixture;
  const TensorView dense = dense_.tensor(DType::fp32, {pass.hidden.rows(), config_.hidden});
  compute_.device.zero(dense.data(), dense.elements() * size_of(DType::fp32), compute_.stream);
  for (int block = 0; block < tensor_.num_blocks(); ++block) {
    advance(block, &norms.feed_forward, nullptr, pass);
    const auto norm = [this, weight = mixture.after_dense](const TensorView& sum) {
      products_.norm(sum, weight, sum);
    };
    ffn_.run(weights.ffn, block, normed(block, pass), tensor_.own_of(dense, block), {norm});
  }
  for (int block = 0; block < tensor_.num_blocks(); ++block) {
    advance(block, nullptr, first_norm(index + 1), pass);
    tensor_.wait_sum(block);
    TensorParallel::Change change = change_by(norms.after_feed_forward, block, pass);
    change.apply = [this, weight = mixture.after, of_dense = tensor_.own_of(dense, block),
                    norm_both = change.apply](const TensorView& sum) {
      products_.norm(sum, weight, sum);
      compute_.backend.add({of_dense, sum}, compute_.stream);
      norm_both(sum);
    };
    if (config_.second.width == 0) change.scale = weights.scale;  // else finish_layer
    const TensorView rows = gathered_norm(expert_rows_, block, mixture.before, pass);
    const TensorView routed = gathered_norm(routed_rows_, block, mixture.router_norm, pass);
    mixture_.run(mixture, block, rows, routed, tensor_.own_of(pass.hidden, block), change);
  }
}

/// A norm of the block's hidden states, of all its rows: [rows of the block, hidden].
TensorView Model::gathered_norm(device::Buffer& buffer, int block, const TensorView& weight,
                                const PassTensors& pass) {
  const parallel::ShardedRows& rows = tensor_.rows();
  const TensorView all = buffer.tensor(operand_type(), {rows.linear.size(), config_.hidden});
  products_.norm_hidden(
      tensor_.own_of(pass.hidden, block), weight,
      all.slice_rows(rows.own[block].begin - rows.linear.begin, rows.own[block].size()));
  tensor_.start_gather(block, all);
  tensor_.wait_gather(block);
  return tensor_.block_of(all, block);
}

/// Called before each block's product in a stage (QKV, o_proj, FFN). It advances the block whose
/// sum has had its share of products to hide behind: it waits for the sum, applies the norm of the
/// block's next product or copies the rows if there is none, and starts gathering the result. With
/// four blocks and two products before
/// a sum:
///
///     before block     0                        1             2             3
///     takes on         1 of the stage before    2 of it       3 of it       0 of this stage
///
/// `own` is the norm of this stage, null after attention. `next` is the norm of the following
/// stage, null before attention and after the last layer.
void Model::advance(int block, const Norm* own, const Norm* next, const PassTensors& pass) {
  const int due = block - 1 - tensor_.products_before_sum();
  const bool this_stage = due >= 0;
  const Norm* const of = this_stage ? next : own;
  if (of == nullptr) return;
  const int taken = this_stage ? due : due + tensor_.num_blocks();
  tensor_.wait_sum(taken);
  if (of->begins) finish_layer(*of->begins - 1, taken, pass);
  const parallel::ShardedRows& rows = tensor_.rows();
  const TensorView hidden = tensor_.own_of(pass.hidden, taken);
  const TensorView input =
      pass.normed.slice_rows(rows.own[taken].begin - rows.linear.begin, rows.own[taken].size());
  if (of->weight)
    products_.norm_hidden(hidden, of->weight, input, tensor_.own_of(pass.marks, taken), of->mark);
  else
    compute_.copy(hidden, input);
  tensor_.start_gather(taken, pass.normed);
}

TensorParallel::Change Model::change_by(const Norm& norm, int block, const PassTensors& pass) {
  if (!norm.weight) return {};
  return {[this, &norm, marks = tensor_.own_of(pass.marks, block)](const TensorView& sum) {
    products_.norm(sum, norm.weight, sum, marks, norm.mark);
  }};
}

void Model::logits(const TensorView& hidden, const TensorView& out) {
  if (vocab_parts() > 1) return tensor_.exchange_logits(logits_part(hidden), out);
  products_.linear("lm_head", hidden, head_part(), out);
  cap_logits(out);
}

parallel::RowRange Model::vocab_range() const {
  return unit_part(config_, CutUnit::vocab, tensor_.vocab_cut());
}

LinearWeight Model::head_part() const {
  PECIA_CHECK(weights_.has_head(), "logits of a model without lm_head");
  const parallel::RowRange held = unit_part(config_, CutUnit::vocab, weights_.part);
  const parallel::RowRange part = vocab_range();
  return slice_rows(weights_.head, part.begin - held.begin, part.size());
}

TensorView Model::logits_part(const TensorView& hidden) {
  const TensorView part = logits_.tensor(DType::fp32, {hidden.rows(), vocab_range().size()});
  products_.linear("lm_head", hidden, head_part(), part);
  cap_logits(part);
  return part;
}

void Model::cap_logits(const TensorView& logits) {
  if (config_.logit_cap > 0) products_.soft_cap(logits, static_cast<float>(config_.logit_cap));
}

}  // namespace pecia::model
