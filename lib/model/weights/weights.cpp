// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/base/core/codes.hpp"
#include "lib/model/config/family.hpp"
#include "lib/model/weights/convert.hpp"
#include "lib/model/weights/latent_weights.hpp"
#include "lib/model/weights/packed_experts.hpp"
#include "lib/model/weights/read_codes.hpp"
#include "lib/model/weights/recurrent_weights.hpp"
#include "lib/model/weights/residence.hpp"
#include "lib/model/weights/stored_rows.hpp"
#include "lib/model/weights/weight_loader.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {

using parallel::WeightCut;

namespace {

std::string weight(std::string_view name) {
  return std::string(name) + ".weight";
}

/// Reads one layer's tensors by the family's names. They are whole and as stored.
class LayerReader {
 public:
  LayerReader(const ModelConfig& config, WeightLoader& loader, int64_t layer)
      : config_(config), names_(traits_of(config.family).names), loader_(loader), layer_(layer) {}

  LayerWeights read() {
    const MixerKind mixer = config_.mixer(layer_);
    const bool attends = mixer == MixerKind::attention, recurs = mixer == MixerKind::recurrence;
    const bool has_ffn = config_.has_dense_ffn(layer_);
    const auto norm_of = [&](std::string_view name, bool has_block) {
      return has_block ? norm(name, config_.hidden) : TensorView();
    };
    const bool mixes = attends || recurs, feeds = has_ffn || has_experts();
    return {.attention_norm = norm_of(names_.attention_norm, mixes),
            .ffn_norm = norm_of(names_.ffn_norm, feeds),
            .post_attention_norm = norm_of(names_.post_attention_norm, mixes),
            .post_ffn_norm = norm_of(names_.post_ffn_norm, feeds),
            .has_attention = attends,
            .attention = attends ? attention() : AttentionWeights{},
            .recurrent = recurs ? std::optional(read_recurrent_weights(config_, loader_, layer_))
                                : std::nullopt,
            .has_ffn = has_ffn,
            .ffn = has_ffn ? gated_ffn() : GatedFfnWeights{},
            .mixture = has_experts() ? mixture() : MixtureWeights{},
            .second = second(),
            .scale = scale()};
  }

 private:
  bool has_experts() const { return config_.feed_forward(layer_) == FeedForward::experts; }
  bool has_gate() const { return config_.matrices_of_ffn() == 3; }

  AttentionWeights attention() {
    AttentionWeights weights;
    if (!names_.q_norm.empty() && config_.qk_norm != QkNorm::none) {
      const bool all = config_.qk_norm == QkNorm::all_heads;
      const auto [kv_heads, dim] = config_.heads(layer_);
      weights.q_norm = norm(names_.q_norm, (all ? config_.num_heads : 1) * dim);
      if (config_.has_keys(layer_))
        weights.k_norm = norm(names_.k_norm, (all ? kv_heads : 1) * dim);
    }
    weights.has_keys = config_.has_keys(layer_), weights.has_values = config_.has_values(layer_);
    for (const std::string_view unused : {names_.k, names_.k_norm, names_.v})
      if (!weights.has_keys) loader_.ignore(layer_name(layer_, weight(unused)));
    if (config_.latent) {
      read_latents(weights);
      weights.o = matrix(MatrixKind::o);
      return weights;
    }
    if (config_.attention_sinks)
      weights.sinks = loader_.vector(layer_name(layer_, names_.sinks), config_.num_heads);
    weights.q = matrix(MatrixKind::q);
    if (weights.has_keys) weights.k = matrix(MatrixKind::k);
    if (weights.has_values) weights.v = matrix(MatrixKind::v);
    if (config_.attention_gate) weights.gate = matrix(MatrixKind::attention_gate);
    weights.o = matrix(MatrixKind::o);
    return weights;
  }

  /// Without what read_latent_up reads.
  void read_latents(AttentionWeights& weights) {
    LatentWeights& latent = weights.latent.emplace();
    if (config_.latent->q_rank > 0) {
      latent.q_down = matrix(MatrixKind::q_down);
      weights.q_norm = norm(names_.q_norm, config_.latent->q_rank);
    }
    weights.q = matrix(MatrixKind::q);
    latent.kv_down = matrix(MatrixKind::kv_down);
    weights.k_norm = norm(names_.k_norm, config_.latent->kv_rank);
  }

  GatedFfnWeights gated_ffn() {
    GatedFfnWeights weights;
    if (config_.xielu) weights.xielu = xielu();
    weights.has_gate = has_gate();
    if (weights.has_gate) weights.gate = matrix(MatrixKind::gate);
    weights.up = matrix(MatrixKind::up);
    weights.down = matrix(MatrixKind::down);
    return weights;
  }

  /// The curvatures are stored as what softplus makes them of. The one below zero is stored without
  /// the slope.
  kernels::XieluCurve xielu() {
    const auto stored = [&](const char* constant) {
      const std::string name = layer_name(layer_, fmt::format("{}.{}", names_.xielu, constant));
      const TensorView one =
          loader_.has_shape(name, {}) ? loader_.tensor(name, {}) : loader_.tensor(name, {1});
      return static_cast<double>(load_as_float(one.data(), one.dtype(), 0));
    };
    const auto softplus = [](double x) {
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    };
    const double slope = stored("beta");
    return {static_cast<float>(softplus(stored("alpha_p"))),
            static_cast<float>(slope + softplus(stored("alpha_n"))), static_cast<float>(slope),
            static_cast<float>(stored("eps"))};
  }

  std::optional<SecondWeights> second() {
    if (config_.second.width == 0) return {};
    return SecondWeights{matrix(MatrixKind::second_gate), matrix(MatrixKind::second_up),
                         norm(names_.second_norm, config_.hidden)};
  }

  float scale() {
    if (!config_.scales_layers) return 1;
    const TensorView stored = loader_.vector(layer_name(layer_, names_.layer_scale), 1);
    return load_as_float(stored.data(), stored.dtype(), 0);
  }

  void read_beside_dense(MixtureWeights& weights) {
    weights.expert_scales =
        loader_.vector(layer_name(layer_, names_.expert_scales), config_.experts->count);
    weights.router_norm = loader_.vector(layer_name(layer_, names_.router_scale), config_.hidden);
    weights.before = norm(names_.experts_norm, config_.hidden);
    weights.after_dense = norm(names_.post_dense_norm, config_.hidden);
    weights.after = norm(names_.post_experts_norm, config_.hidden);
  }

  /// Packed experts are missing: only a part of them is ever unpacked.
  MixtureWeights mixture() {
    MixtureWeights weights;
    weights.router = matrix(MatrixKind::router);
    if (config_.experts.value().choice_bias)
      weights.choice_bias =
          loader_.vector(layer_name(layer_, names_.choice_bias), config_.experts->count);
    if (config_.dense_beside_experts) read_beside_dense(weights);
    if (config_.experts->latent > 0) {
      weights.to_latents = matrix(MatrixKind::to_latents);
      weights.from_latents = matrix(MatrixKind::from_latents);
    }
    if (config_.experts->shared_ffn > 0) weights.shared = shared_expert();
    if (traits_of(config_.family).packed_experts) return weights;
    const bool are_stacked =
        !names_.experts_down.empty() &&
        (names_.expert_down.empty() || loader_.contains(layer_name(layer_, names_.experts_down)));
    if (are_stacked) {
      weights.experts = stacked_experts();
      return weights;
    }
    for (int64_t expert = 0; expert < config_.experts.value().count; ++expert) {
      GatedFfnWeights& own = weights.experts.emplace_back();
      own.has_gate = has_gate();
      if (own.has_gate) own.gate = matrix(MatrixKind::expert_gate, expert);
      own.up = matrix(MatrixKind::expert_up, expert);
      own.down = matrix(MatrixKind::expert_down, expert);
    }
    return weights;
  }

  GatedFfnWeights shared_expert() {
    GatedFfnWeights weights;
    weights.has_gate = has_gate();
    if (weights.has_gate) weights.gate = matrix(MatrixKind::shared_gate);
    weights.up = matrix(MatrixKind::shared_up);
    weights.down = matrix(MatrixKind::shared_down);
    if (config_.experts->shared_gate) weights.row_gate = matrix(MatrixKind::shared_row_gate);
    return weights;
  }

  /// Experts whose matrices lie in two tensors of the layer.
  std::vector<GatedFfnWeights> stacked_experts() {
    const ExpertsConfig& config = config_.experts.value();
    const int64_t hidden = config_.hidden, ffn = config.ffn;
    const TensorView gate_up =
        loader_.tensor(layer_name(layer_, names_.experts_gate_up), {config.count, 2 * ffn, hidden});
    const TensorView down =
        loader_.tensor(layer_name(layer_, names_.experts_down), {config.count, hidden, ffn});
    const TensorView gates_ups = gate_up.reshape({config.count * 2 * ffn, hidden});
    const TensorView downs = down.reshape({config.count * hidden, ffn});
    const auto rows = [](const TensorView& all, int64_t first, int64_t count) {
      return LinearWeight{{{all.slice_rows(first, count), TensorView()}}};
    };
    std::vector<GatedFfnWeights> experts;
    for (int64_t expert = 0; expert < config.count; ++expert)
      experts.push_back({rows(gates_ups, expert * 2 * ffn, ffn),
                         rows(gates_ups, (expert * 2 + 1) * ffn, ffn),
                         rows(downs, expert * hidden, hidden)});
    return experts;
  }

  /// Absent if the family has no such norm.
  TensorView norm(std::string_view name, int64_t size) {
    if (name.empty()) return {};
    return loader_.vector(layer_name(layer_, weight(name)), size);
  }

  /// Without parts if the matrix is stored as codes: only a part of it is ever read.
  LinearWeight matrix(MatrixKind kind, int64_t expert = 0) {
    return read_numbers(config_, loader_, kind, layer_, expert);
  }

  const ModelConfig& config_;
  const WeightNames& names_;
  WeightLoader& loader_;
  int64_t layer_;
};

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.dtype() == b.dtype() && a.elements() == b.elements() &&
         std::memcmp(a.data(), b.data(), a.elements() * size_of(a.dtype())) == 0;
}

/// The single matrix of tied embeddings. Checkpoints store it under either name or under both.
TensorView tied_matrix(const ModelConfig& config, WeightLoader& loader) {
  const std::string embedding = weight(traits_of(config.family).names.embedding);
  const std::string head = weight(traits_of(config.family).names.head);
  if (!loader.contains(embedding) && loader.contains(head))
    return loader.matrix(head, config.vocab, config.hidden);
  const TensorView matrix = loader.matrix(embedding, config.vocab, config.hidden);
  if (loader.contains(head)) {
    if (!same_bytes(matrix, loader.matrix(head, config.vocab, config.hidden)))
      fail<InputError>(
          "{}: tensors '{}' and '{}' differ, but config.json ties them; set "
          "tie_word_embeddings to false there",
          loader.file_of(head), embedding, head);
  }
  return matrix;
}

}  // namespace

std::string types_text(DType layers, const std::vector<DType>& experts) {
  std::vector<std::string_view> names;  // without repetition
  for (const DType type : experts)
    if (std::ranges::find(names, name_of(type)) == names.end()) names.push_back(name_of(type));
  const std::string_view first = name_of(layers);
  if (names.empty() || (names.size() == 1 && names.front() == first)) return std::string(first);
  return fmt::format("{} with experts of {}", first, fmt::join(names, " and "));
}

DType WeightViews::matrix_type() const {
  std::optional<DType> first;
  layers.front().for_each_matrix([&](MatrixKind, const LinearWeight& matrix) {
    if (!first) first = matrix.parts.front().weight.dtype();
  });
  return first.value();
}

DType WeightViews::plain_type() const {
  if (embedding) return embedding.dtype();
  if (has_head() && !is_code(head.parts.front().weight.dtype()))
    return head.parts.front().weight.dtype();
  const LayerWeights& first = layers.front();
  for (const TensorView& norm :
       {first.attention_norm, first.ffn_norm, first.post_attention_norm, first.post_ffn_norm})
    if (norm) return norm.dtype();
  fail<InvalidArgument>("layers without a norm");
}

std::string types_text(const WeightViews& weights) {
  std::vector<DType> experts;
  for (const LayerWeights& layer : weights.layers)
    layer.for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      if (role_of(kind).unit == CutUnit::expert_ffn)
        experts.push_back(matrix.parts.front().weight.dtype());
    });
  return types_text(weights.matrix_type(), experts);
}

Weights::Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype,
                 WeightCut cut, const CodeUse& codes, const ModelStage& stage)
    : Weights(config, std::move(checkpoint), dtype, cut, *std::make_unique<device::ThreadPool>(1),
              codes, stage) {}

Weights::Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype,
                 WeightCut cut, device::ThreadPool& pool, const CodeUse& codes,
                 const ModelStage& stage)
    : checkpoint_(std::move(checkpoint)) {
  part = cut;
  CodeUse use = codes;
  use.kept = codes.kept && !dtype;
  const WeightNames& names = traits_of(config.family).names;
  WeightLoader loader(checkpoint_);
  Residence residence(checkpoint_, dtype, config.norm_weight_offset, pool);
  const parallel::RowRange rows = unit_part(config, CutUnit::vocab, cut);
  const auto of_vocab = [&](const TensorView& matrix) {
    return residence.matrix(matrix.slice_rows(rows.begin, rows.size()));
  };
  if (config.tied_embeddings) {
    const TensorView both =
        stage.embeds() || stage.ends() ? of_vocab(tied_matrix(config, loader)) : TensorView();
    if (stage.embeds()) embedding = both;
    if (stage.ends()) head.parts.push_back({both, TensorView()});
  } else {
    if (stage.embeds())
      embedding = of_vocab(loader.matrix(weight(names.embedding), config.vocab, config.hidden));
    if (stage.ends() && loader.contains(weight(names.head)))
      head.parts.push_back(
          {of_vocab(loader.matrix(weight(names.head), config.vocab, config.hidden)), TensorView()});
  }
  if (config.second.width > 0) {
    const int64_t width = config.layers * config.second.width;
    second_embedding = of_vocab(loader.matrix(weight(names.second_embedding), config.vocab, width));
    second_projection.parts.push_back(
        {residence.matrix(loader.matrix(weight(names.second_projection), width, config.hidden)),
         TensorView()});
    second_norm =
        residence.norm(loader.vector(weight(names.second_projection_norm), config.second.width));
  }
  if (stage.ends())
    final_norm = residence.norm(loader.vector(weight(names.final_norm), config.hidden),
                                config.logits_divisor);
  const int64_t end = stage.count == 1 ? config.layers : stage.end;
  for (int64_t layer = stage.begin; layer < end; ++layer) {
    LayerWeights own =
        cut_layer(LayerReader(config, loader, layer).read(), config, layer, WeightCut{}, cut);
    if (own.attention.latent)
      read_latent_up(config, loader, layer, cut, dtype, pool, residence.converted,
                     *own.attention.latent);
    if (traits_of(config.family).packed_experts && !own.mixture.router.parts.empty())
      own.mixture.experts =
          read_packed_experts(config, loader, layer, cut, use, pool, residence.converted);
    else if (config.quantization)
      read_codes(config, loader, layer, cut, use, dtype, pool, residence.converted, own);
    layers.push_back(residence.layer(own, config, layer));
  }
  if (stage.count > 1) {
    loader.ignore_layers(0, stage.begin);
    loader.ignore_layers(end, config.layers - end);
    for (const std::string_view name : {names.embedding, names.head, names.final_norm})
      loader.ignore(weight(name));
  }
  loader.ignore_layers(config.layers, config.draft_layers);
  loader.ignore_prefix(traits_of(config.family).draft_prefix);
  loader.refuse_left_over(config.layers);

  used_.assign(loader.used.begin(), loader.used.end());
  mxfp4_scales_.assign(loader.mxfp4_scales.begin(), loader.mxfp4_scales.end());
  converted_ = std::move(residence.converted);
  resident_bytes_ = residence.resident_bytes;
  for (const device::Buffer& buffer : converted_) converted_bytes_ += buffer.bytes();
}

void Weights::check_scales(int share, int num_shares) const {
  for (const std::string& name : mxfp4_scales_) {
    const TensorView scales = checkpoint_.tensor(name);
    const auto* const begin = scales.as<const uint8_t>();
    const auto mine = parallel::row_part({0, scales.elements()}, num_shares, share);
    const auto* const found = std::find_if(begin + mine.begin, begin + mine.end,
                                           [](uint8_t scale) { return scale > most_mxfp4_scale; });
    if (found != begin + mine.end)
      fail<InputError>("{}: tensor '{}' holds {}, {}, at element {}; download the file again",
                       checkpoint_.file_of(name).string(), name, *found,
                       *found == 255 ? "which stands for NaN" : "with which numbers overflow",
                       found - begin);
  }
}

namespace {
bool may_hold_nan(DType dtype) {
  return is_float(dtype) || dtype == DType::fp8;
}
}  // namespace

void Weights::check_finite(int share, int num_shares, device::ThreadPool& pool) const {
  PECIA_CHECK(num_shares >= 1 && share >= 0 && share < num_shares, "share {} of {}", share,
              num_shares);
  check_scales(share, num_shares);
  int64_t total = 0;
  for (const std::string& name : used_) {
    const TensorView tensor = checkpoint_.tensor(name);
    if (!may_hold_nan(tensor.dtype())) continue;
    total += tensor.elements() * size_of(tensor.dtype());
  }
  const auto begin_of = [&](int64_t which) {
    return total / num_shares * which + std::min(which, total % num_shares);
  };
  const int64_t begin = begin_of(share), end = begin_of(share + 1);

  int64_t offset = 0;  // of the tensor's first byte among the bytes of all tensors
  for (const std::string& name : used_) {
    const TensorView tensor = checkpoint_.tensor(name);
    if (!may_hold_nan(tensor.dtype())) continue;
    const int64_t element_bytes = size_of(tensor.dtype());
    // An element that a share's border cuts belongs to the share that holds its first byte.
    const auto element_at = [&](int64_t byte) {
      const int64_t inside =
          std::clamp(byte - offset, int64_t{0}, tensor.elements() * element_bytes);
      return (inside + element_bytes - 1) / element_bytes;
    };
    const auto index = first_not_finite(tensor, element_at(begin), element_at(end), pool);
    if (index)
      fail<InputError>(
          "{}: tensor '{}' holds {} at element {}; the file is damaged or the model was "
          "saved after its training diverged: download it again",
          checkpoint_.file_of(name).string(), name,
          load_as_float(tensor.data(), tensor.dtype(), *index), *index);
    offset += tensor.elements() * element_bytes;
  }
}

}  // namespace pecia::model
