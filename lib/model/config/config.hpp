// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The properties of a model, read from config.json (key styles of transformers 4 and 5) and
/// generation_config.json.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api/experts.hpp"
#include "kernels/api/gated_activation.hpp"
#include "kernels/api/rope.hpp"
#include "kernels/api/route.hpp"
#include "kernels/api/window.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/model/config/quantization.hpp"

namespace pecia::model {

/// Families read from checkpoints. All are decoders whose layers are attention or a recurrence,
/// and either a gated FFN, an FFN without a gate, or a mixture of gated ones.
enum class Family {
  llama,
  mistral,
  ministral,
  ministral3,
  qwen2,
  qwen3,
  glm,
  internlm2,
  granite,
  smollm3,
  phi3,
  olmo2,
  olmo3,
  gemma3,
  qwen3_moe,
  mixtral,
  olmoe,
  gpt_oss,
  apertus,
  glm4_moe,
  minimax_m2,
  afmoe,
  deepseek_v3,
  glm4_moe_lite,
  mistral4,
  llama4_text,
  qwen2_moe,
  gemma4,
  qwen3_next,
  qwen3_5,
  qwen3_5_moe,
  granitemoehybrid,
  nemotron_h
};

std::string_view name_of(Family family);

/// rope_scaling kinds, as transformers' modeling_rope_utils defines them.
enum class RopeScaling { none, linear, dynamic, llama3, yarn, longrope, proportional };

/// The rope_type of the kind in config.json; "default" for none.
std::string_view name_of(RopeScaling scaling);

/// The most positions that a configuration may give a model.
constexpr int64_t max_model_positions = int64_t{1} << 40;
constexpr int64_t max_model_layers = 1 << 14;
constexpr int64_t max_ffn_columns = 1 << 22;

struct RopeConfig {
  double theta = 10000.0;
  int64_t rotary_dim = 0;  ///< head_dim · partial_rotary_factor
  kernels::RopePairs pairs = kernels::RopePairs::halves;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  /// llama3, yarn, longrope: original_max_position_embeddings; linear, dynamic:
  /// max_position_embeddings.
  int64_t original_max_positions = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;            ///< llama3
  double beta_fast = 32.0, beta_slow = 1.0;                        ///< yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  ///< yarn
  bool truncate = true;                                            ///< yarn
  /// yarn: the query at position p is multiplied by 1 + beta · ln(1 + ⌊p / original_max_positions⌋),
  /// as Llama 4 tunes the temperature of attention; 0: it is not.
  double temperature_beta = 0;
  std::vector<double> short_factors, long_factors;  ///< longrope, [rotary_dim/2]
  /// proportional: the share of the rotary_dim / 2 pairs that turn, the first ones; the frequencies
  /// of the others are 0.
  double turning_share = 1;
};

/// How a layer rotates q and k: not at all, by ModelConfig::rope, or by its local_rope.
enum class Rotation : uint8_t { none, main, local };

/// What mixes the rows of a layer.
enum class MixerKind : uint8_t { attention, recurrence, none };

/// What a layer has after its mixer.
enum class FeedForward : uint8_t {
  dense,    ///< one FFN
  experts,  ///< a router, several gated FFNs of which each token takes some, and perhaps one for all
  none
};

/// KV heads of a layer.
struct KvHeads {
  int64_t count = 0, dim = 0;  ///< dim: also of its query heads
  bool operator==(const KvHeads&) const = default;
};

/// A second embedding of each token, whose part for a layer is added to what the layer makes. With
/// the scaled first embedding x0 and the table t [vocab, layers · width], layer i gets
///
///     e_i = (t[token, i] · √width + norm(projection_i x0 · hidden^-½)) · 2^-½
///     x  ← x + norm(up (gelu(gate x) ∘ e_i))                  after its feed-forward
struct SecondEmbedding {
  int64_t width = 0;  ///< for each layer; 0: there is none
  bool operator==(const SecondEmbedding&) const = default;
};

/// What differs between layers. Each is a mixer and then a feed-forward, or one of both.
struct LayerConfig {
  kernels::Window window = {};  ///< of the attention
  Rotation rotation = Rotation::main;
  FeedForward feed_forward = FeedForward::dense;
  MixerKind mixer = MixerKind::attention;

  bool operator==(const LayerConfig&) const = default;
};

/// RMS norm of q and k before the rotation.
enum class QkNorm : uint8_t {
  none,
  each_head,  ///< one weight [head_dim] for all heads
  /// Each head without a weight, in layers that rotate whole heads; after that, which is the same.
  rotated_heads,
  all_heads  ///< the mean is over all heads together; the weights are [heads · head_dim]
};

/// The experts of a layer that has some.
struct ExpertsConfig {
  int64_t count = 0, per_token = 0;
  int64_t ffn = 0;  ///< columns of each
  kernels::Routing routing = kernels::Routing::of_all;
  kernels::SigmoidRouting sigmoid = {};  ///< of Routing::sigmoid
  bool choice_bias = false;              ///< kernels::RouteArgs::bias
  kernels::Weighed weighed = kernels::Weighed::outputs;
  int64_t shared_ffn = 0;    ///< columns of the shared expert, which every token takes; 0: none
  bool shared_gate = false;  ///< sigmoid(g · x) multiplies its result, with one row g
  /// Experts, but for the shared one, work on latents of this width, which a matrix makes of x, and
  /// another one multiplies their sum; 0: they work on x. The router sees x. Source: Nemotron 3.
  int64_t latent = 0;
};

/// Latent attention (MLA). A token has one row for all heads: latents c [kv_rank], normed, and a
/// rotated part [rope_dim]. Head h has the query [nope | rotated rope] and, by its part of kv_b,
///
///     key [K_h c | rotated part],   value V_h c
///
/// Absorbed, with the query [K_hᵀ nope | rotated rope] every head attends the rows themselves, whose
/// first kv_rank numbers are the values, and V_h multiplies the result. So the cache has one KV head
/// of key_dim numbers. Source: DeepSeek-V2, §2.1.
struct LatentConfig {
  int64_t q_rank = 0;  ///< of the latents that queries are made of; 0: these are made of x
  int64_t kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0;  ///< of a head's query
  int64_t value_dim = 0;               ///< what o takes of a head

  int64_t query_dim() const { return nope_dim + rope_dim; }
  int64_t key_dim() const { return kv_rank + rope_dim; }
};

/// A linear recurrence, of layers that have MixerKind::recurrence (kernels/api/recurrence.hpp): a
/// gated delta net, or Mamba-2. What is projected of x are q and k of key_heads, and v, z, a and b
/// of heads (Mamba-2: C and B of its groups, x, z and Δ; it has no b):
///
///     q, k, v  ← silu(conv(q), …)     each channel with its last conv_rows rows
///     q, k     ← q / (|q| √key_dim), k / |k|                                     delta net
///     decay    = −exp(A) · softplus(a + bias),  strength = sigmoid(b)            delta net
///     strength = softplus(a + bias) in step_limits,  decay = −exp(A) · strength  Mamba-2
///     y        = norm_of_each_head(out) · silu(z)                                delta net
///     y        = norm_of_each_group((out + D v) · silu(z))                       Mamba-2
struct RecurrentConfig {
  bool corrects = true;  ///< a gated delta net; else Mamba-2
  int64_t key_heads = 0, key_dim = 0;
  int64_t heads = 0, value_dim = 0;  ///< heads is a multiple of key_heads
  int64_t conv_rows = 0;             ///< that a channel's convolution sees, its own among them
  bool conv_bias = false;
  double least_step = 0, most_step = std::numeric_limits<double>::infinity();  ///< Mamba-2

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return heads * value_dim; }
  /// What the convolution has of a row: q, k and v.
  int64_t channels() const { return 2 * keys() + values(); }
  /// Numbers of a layer beside its matrices: of the convolution, of each head and of the norm.
  int64_t vectors() const {
    return channels() * (conv_rows + (conv_bias ? 1 : 0)) + heads * (corrects ? 2 : 3) +
           (corrects ? value_dim : values());
  }
};

/// Multiplies the query at position p by 1 + scale · ln(1 + ⌊(p + 1) / floor⌋).
struct QueryTemperature {
  double scale = 0;
  int64_t floor = 1;
};

/// How many layers store something of each token or sequence: keys, or a state.
struct StoringLayers {
  int64_t without_window = 0, with_window = 0, recurrent = 0;
};

/// The stage of a pipeline that has the layers of a configuration (stage.hpp).
struct ModelStage {
  int index = 0, count = 1;
  int64_t begin = 0, end = 0;  ///< its layers in the whole model; of one stage alone 0 and 0: all
  StoringLayers before = {}, after = {};  ///< of the stages before and after it

  bool embeds() const { return index == 0; }        ///< has the embedding
  bool ends() const { return index == count - 1; }  ///< has the final norm and the head
};

struct ModelConfig {
  Family family = Family::llama;
  int64_t vocab = 0, hidden = 0, layers = 0;
  int64_t ffn = 0;                       ///< columns of a dense feed-forward
  std::optional<ExpertsConfig> experts;  ///< of layers that have FeedForward::experts
  /// Such layers have a dense feed-forward beside the experts: each has a norm of its own before and
  /// after it, and what both make is added. The router sees the norm of hidden states by its own
  /// scale, and each expert's weight is multiplied by a scale.
  bool dense_beside_experts = false;
  std::vector<LayerConfig> pattern;  ///< [layers]
  /// As attention sees them: with latents one KV head of LatentConfig::key_dim. Of layers with a
  /// window, where the others have full_heads.
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  std::optional<KvHeads>
      full_heads;                 ///< of layers without a window; absent: the same as the others'
  bool norms_values = false;      ///< values have an RMS norm of each head, without a weight
  bool keys_give_values = false;  ///< layers without a window have no v: k's product gives both
  /// The number of last layers without keys of their own: each attends the keys of the last layer
  /// before these with the same window. Their dense feed-forwards have sharing_ffn columns.
  int64_t sharing_layers = 0, sharing_ffn = 0;
  SecondEmbedding second = {};
  bool scales_layers = false;  ///< each layer has a number that multiplies hidden states after it
  double logit_cap = 0;        ///< logits become cap · tanh(logits / cap); 0: they stay
  std::optional<LatentConfig> latent;
  std::optional<RecurrentConfig> recurrent;  ///< of layers that have MixerKind::recurrence
  /// Context length that the model claims: max_position_embeddings, multiplied by the factor of
  /// linear and dynamic scaling; with yarn at least factor × original length. With Qwen2.5-1M's
  /// dual_chunk_attention_config it is only the length within which that equals plain attention.
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;                   ///< of layers that have Rotation::local
  std::optional<QueryTemperature> unrotated_temperature;  ///< of layers that do not rotate
  bool tied_embeddings = false;
  bool attention_bias = false;         ///< on q, k and v; with latents on the projections to these
  bool attention_output_bias = false;  ///< on the attention's output projection
  bool mlp_bias = false;               ///< of dense feed-forwards
  bool expert_bias = false;            ///< on routers and experts
  bool attention_sinks = false;        ///< each head has a sink (attention::AttentionSteps)
  bool attention_gate = false;         ///< sigmoid(gate · x) multiplies what heads give, before o
  QkNorm qk_norm = QkNorm::none;
  bool norm_before = true, norm_after = false;  ///< where a layer's two blocks have RMS norms
  double norm_weight_offset = 0;  ///< what is added to stored weights of norms, in fp32
  kernels::Activation activation = kernels::Activation::silu;
  bool xielu = false;  ///< dense feed-forwards have no gate: down · xielu(up · x)
  /// False: feed-forwards and experts have none: down · activation(up · x, up · x).
  bool ffn_has_gate = true;
  std::optional<float> attention_scale;  ///< what multiplies scores; absent: head_dim^-½
  double embedding_scale = 1;            ///< what multiplies embeddings, but not a tied head
  double residual_scale = 1;             ///< what multiplies what a block adds
  double logits_divisor = 1;
  ModelStage stage = {};  ///< whose layers these are
  /// Layers after the last one whose tensors a checkpoint may hold, for drafts; they are not read.
  int64_t draft_layers = 0;
  std::optional<DType> stored_dtype;  ///< type in config.json; the tensors' own types decide
  std::optional<StoredQuantization> quantization;  ///< of matrices that are stored as codes
  /// From eos_token_id of generation_config.json, else of config.json, else the family's default.
  std::vector<int32_t> stop_token_ids;
  std::string sha256;  ///< of the bytes of config.json

  /// The KV heads of a layer, as attention sees them.
  KvHeads heads(int64_t layer) const {
    return full_heads && pattern[layer].window == 0 ? *full_heads : KvHeads{num_kv_heads, head_dim};
  }
  /// Of layers without a window if there are some: those by which long sequences are attended.
  KvHeads widest_heads() const { return full_heads.value_or(KvHeads{num_kv_heads, head_dim}); }
  std::vector<int64_t> kv_heads_of_layers() const;  ///< by layer; empty: all have num_kv_heads
  MixerKind mixer(int64_t layer) const {
    return recurrent ? pattern[layer].mixer : MixerKind::attention;
  }
  int64_t num_layers(MixerKind mixer) const;  ///< how many layers have such a mixer
  /// The layer whose keys and values this layer attends: itself, or one before it; −1: it attends
  /// none.
  int64_t keys_of(int64_t layer) const;
  bool has_keys(int64_t layer) const {
    return mixer(layer) == MixerKind::attention && !shares_keys(layer);
  }
  bool shares_keys(int64_t layer) const {
    return sharing_layers > 0 && layer >= layers - sharing_layers;
  }
  bool has_values(int64_t layer) const {
    return has_keys(layer) && !(keys_give_values && pattern[layer].window == 0);
  }
  int64_t ffn_of(int64_t layer) const { return shares_keys(layer) ? sharing_ffn : ffn; }
  /// Numbers of a head as it is projected, as attention gives it, and as o takes it.
  int64_t query_dim(int64_t layer = 0) const {
    return latent ? latent->query_dim() : heads(layer).dim;
  }
  int64_t value_dim(int64_t layer = 0) const { return latent ? latent->kv_rank : heads(layer).dim; }
  int64_t output_dim(int64_t layer = 0) const {
    return latent ? latent->value_dim : heads(layer).dim;
  }
  /// Above 0: values are the beginnings of keys, of this length (attention::KvShape).
  int64_t values_in_keys() const { return latent ? latent->kv_rank : 0; }
  /// The last layer that mixes rows; the first one where none does.
  int64_t last_mixing_layer() const;
  /// What the query heads and the heads of recurrent layers have in common.
  int64_t common_heads() const;
  /// FLOPs of a query row and a key that it sees, in all layers; with latents absorbed.
  double attention_flops_per_pair() const;
  /// The same of long prompts, whose latents are expanded (ranks/parallel/latent_rule.hpp).
  double prompt_flops_per_pair() const;
  std::vector<kernels::Window> windows() const;  ///< by layer
  kernels::Window widest_window() const;         ///< none: there is none
  int64_t layers_with_window() const;
  FeedForward feed_forward(int64_t layer) const {
    return experts || recurrent ? pattern[layer].feed_forward : FeedForward::dense;
  }
  /// How many layers have such a feed-forward; those with dense_beside_experts have both.
  int64_t num_layers(FeedForward feed_forward) const;
  bool norms_without_weights(int64_t layer) const {
    return qk_norm == QkNorm::rotated_heads && pattern[layer].rotation != Rotation::none;
  }
  bool has_dense_ffn(int64_t layer) const {
    return dense_beside_experts || feed_forward(layer) == FeedForward::dense;
  }
  /// What the columns of all feed-forwards have in common: cuts that divide it divide each of them.
  int64_t common_ffn() const;
  /// The same of those that every token takes: dense ones and shared experts. 0: there are none.
  int64_t ffn_of_all_tokens() const;
  int64_t parameters() const;  ///< counts tied embeddings once
  /// The parameters that a token meets: of the experts, those that it takes.
  int64_t active_parameters() const;
  int64_t matrices_of_ffn() const { return xielu || !ffn_has_gate ? 2 : 3; }  ///< or of an expert
  double flops_per_token() const;  ///< 2 × weights of the layers and the head that a token meets
  double flops_of_layer(int64_t layer) const;  ///< the same of one layer, with its recurrence
  double flops_of_head() const;                ///< and of the head
  /// The part of them that follows the last mixer: its output's product and what comes after it.
  double flops_after_mixers() const;
  /// Bytes that all layers cache of a token, or layers with a window, on one of this number of ranks,
  /// over which each layer's KV heads are cut, or which share one.
  int64_t kv_bytes_per_token(DType dtype, int64_t ranks = 1) const;
  int64_t window_bytes_per_token(DType dtype, int64_t ranks = 1) const;
  /// Bytes that a sequence's states in all recurrent layers take, on one of this number of ranks: the
  /// matrices of its heads, and the last rows of q, k and v before the convolution. All are fp32.
  int64_t state_bytes(int64_t ranks = 1) const;
  /// FLOPs of a row in all recurrent layers beside the products: the convolution, and reading and
  /// writing the matrix of each head.
  double recurrence_flops_per_token() const;
};

/// What yarn multiplies attention by: 0.1 · mscale · ln(factor) + 1, or 1 where it does not stretch.
double yarn_mscale(double factor, double mscale);

/// Reads and validates the configuration. Throws InputError naming file, key, value and remedy: no
/// file, not JSON, a required key missing, a value of wrong type or out of range, keys that
/// contradict each other (heads not divisible by KV heads, …). Throws Unsupported naming an
/// architecture or an option that would change the result and is not implemented (another
/// hidden_act than the family has, quantization_config, logit soft-capping, an unknown rope type, …).
ModelConfig read_config(const std::filesystem::path& folder);

/// The same of the text of a config.json; `name` stands for the file in errors.
ModelConfig parse_config(const std::string& text, const std::string& name);

/// Lets prompts exceed the model's length, when a job asks for it. Sets linear, dynamic or yarn
/// scaling by `factor` > 1 with the model's length as the original one, and multiplies
/// max_positions by the factor. Throws InputError for another kind or factor, or when config.json
/// already scales.
void extend_context(ModelConfig& config, RopeScaling kind, double factor);

}  // namespace pecia::model
