// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a family is (families/ has one file for each).

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/model/config/config.hpp"
#include "lib/model/weights/weight_names.hpp"

namespace pecia::model {

/// Which layers may have a sliding window.
enum class WindowRule {
  never,
  every_layer,             ///< sliding_window, if present, holds for all layers
  by_list_or_every_layer,  ///< by layer_types, or in all layers
  by_layer,  ///< by use_sliding_window and layer_types, or from layer max_window_layers on
  by_list,   ///< by use_sliding_window and layer_types, which must then be there
  by_type,   ///< by layer_types, or in all but each full_period-th layer
  chunks     ///< in chunks of attention_chunk_size by layer_types, or in layers that rotate
};

/// Order of the rows of a packed q, k and v.
enum class QkvRows {
  by_kv_head,  ///< for each KV head its query heads, its key head and its value head
  q_k_v        ///< all of q, all of k, all of v
};

/// A key of config.json with the one value that is implemented, as JSON.
struct KnownValue {
  std::string_view key, value;
};

/// Recurrent layers of a family: the keys of config.json that give the sizes of RecurrentConfig, with
/// the values of keys that are absent, and which layers they are (config_recurrent.hpp).
struct RecurrentTraits {
  RecurrentConfig usual;
  std::string_view key_heads, key_dim, heads, value_dim, conv_rows;
  std::string_view conv_bias = "", step_limit = "";  ///< empty: not configurable
  /// The key whose value times the hidden size all heads have together, so that the size of a head may
  /// be "auto"; empty: there is none.
  std::string_view expansion = "";
  int64_t usual_expansion = 0;
  int64_t full_period = 0;  ///< without a list, each such layer attends; 0: none does
  bool one_block = false;   ///< each layer is a mixer or a feed-forward
};

struct FamilyTraits {
  Family family;
  std::string_view model_type;
  std::vector<std::string_view> other_types = {};  ///< that mean the same
  std::vector<std::string_view> architectures;
  std::string_view examples;  ///< models that people know, for lists
  std::string_view beyond;    ///< what it has beyond the common core, for lists

  int64_t head_dim;  ///< 0: hidden_size / num_attention_heads
  double rms_norm_eps;
  double partial_rotary_factor;
  std::vector<int32_t> eos_token_ids;
  double rope_theta = 10000.0;
  bool tied_embeddings = false;
  /// Sizes that config.json may omit; 0: it may not, or as many KV heads as heads.
  int64_t vocab = 0, num_heads = 0, num_kv_heads = 0, max_positions = 0;

  std::string_view bias_key;   ///< key that enables biases on q, k and v; empty: not configurable
  bool bias_default;           ///< value when the key is absent
  bool bias_on_output;         ///< the key also enables a bias on the attention's output projection
  bool mlp_bias_configurable;  ///< mlp_bias is respected
  QkNorm qk_norm = QkNorm::none;
  std::string_view eps_key = "rms_norm_eps";
  std::string_view qk_norm_key = "";  ///< key that enables these norms
  bool qk_norm_default = false;       ///< when that key is absent
  double norm_weight_offset = 0;
  kernels::Activation activation = kernels::Activation::silu;
  bool ffn_has_gate = true;  ///< as in ModelConfig
  kernels::RopePairs pairs;
  bool partial_rotation;                 ///< partial_rotary_factor is respected
  std::string_view rotary_dim_key = "";  ///< key that gives the rotated dimensions of a head
  bool rotates = true;                   ///< false: no layer does
  std::string_view rotation_key = "";    ///< key that must be "rope" for layers to rotate
  /// The file may divide the pairs among axes of images. Those of a text's tokens are alike.
  bool image_axes = false;
  WindowRule windows;
  int64_t window_default;            ///< the window or chunk when the key is absent (null: none)
  int64_t full_period = 0;           ///< by_type, without a list: each such layer is full
  std::string_view period_key = "";  ///< key that may say so
  bool last_layer_is_full = false;   ///< whatever a list says
  /// Layers with a window rotate by a base of their own, which `rope_scaling` does not scale.
  bool local_rope = false;
  std::string_view local_theta_key = "";
  double local_theta = 0;  ///< when that key is absent; 0: the base is rope_theta, too
  /// Other layers turn a share of their pairs (RopeScaling::proportional), by default
  /// partial_rotary_factor.
  bool proportional_rope = false;
  /// Layers without a window have heads of their own (config_own_layers.hpp), of this size when
  /// config.json says nothing; 0: they have not. The last layers may share keys, and all may have
  /// parts of a second embedding.
  int64_t full_head_dim = 0;
  int64_t second_width = 0;                          ///< when config.json says nothing
  bool norms_values = false, scales_layers = false;  ///< as in ModelConfig
  bool sees_images = false;  ///< use_bidirectional_attention may be "vision"
  /// max_position_embeddings counts the positions of linear scaling already.
  bool length_is_scaled = false;
  bool query_temperature = false;     ///< has RopeConfig::temperature_beta
  int64_t original_length = 0;        ///< longrope's original_max_position_embeddings when absent
  int64_t unrotated_period = 0;       ///< no_rope_layer_interval when absent; 0: all layers rotate
  bool rotates_windows_only = false;  ///< layers without a window do not rotate
  /// Layers that do not rotate have ModelConfig::unrotated_temperature, by default.
  bool unrotated_temperature = false;
  bool multipliers = false;          ///< has granite's four multipliers
  bool query_scalar = false;         ///< query_pre_attn_scalar^-½ multiplies scores
  bool unit_scores = false;          ///< nothing multiplies scores
  bool caps_logits = false;          ///< final_logit_softcapping is respected
  bool scales_embeddings = false;    ///< by sqrt(hidden)
  std::string_view scales_key = "";  ///< key that enables that; empty: not configurable
  bool has_experts = false;
  bool experts_optional = false;                   ///< a count of 0 means that all layers are dense
  int64_t num_experts = 0, experts_per_token = 0;  ///< when config.json omits them
  std::string_view expert_count_key = "";          ///< empty: num_experts or num_local_experts
  std::string_view expert_ffn_key = "";            ///< empty: the key is intermediate_size
  std::string_view shared_count_key = "";  ///< how many experts all tokens share, as one FFN
  std::string_view shared_ffn_key = "";    ///< columns of the expert that all tokens share
  int64_t shared_ffn = 0;                  ///< when that key is absent
  bool has_shared_expert = false;          ///< one as wide as the others, whatever the file says
  int64_t shared_count = 0;                ///< when that key is absent
  std::string_view first_dense_key = "";   ///< how many first layers are dense
  int64_t first_dense = 1;                 ///< when that key is absent
  std::string_view dense_list_key =
      "";  ///< list of "dense" and "sparse"; without it layer 0 is dense
  std::string_view route_scale_key = "";  ///< SigmoidRouting::scale
  double route_scale = 1;                 ///< when that key is absent
  bool expert_groups = false;             ///< n_group and topk_group are respected
  int num_groups = 1, kept_groups = 1;    ///< when these are absent
  kernels::Routing routing = kernels::Routing::of_all;
  kernels::SigmoidRouting sigmoid = {};  ///< what no key changes
  bool routing_configurable = false;     ///< norm_topk_prob is respected
  bool mixes_dense_layers = false;       ///< by decoder_sparse_step and mlp_only_layers
  bool interleaves_experts = false;      ///< by moe_layers or interleave_moe_layer_step
  std::string_view dense_ffn_key = "";   ///< columns of dense layers; empty: intermediate_size
  int64_t dense_ffn = 0;                 ///< when that key is absent
  bool weighs_expert_inputs = false;     ///< ExpertsConfig::weighed
  bool expert_latents = false;           ///< moe_latent_size is respected
  bool packed_experts = false;           ///< see packed_experts.hpp
  bool gate_up_rows_alternate = false;   ///< of these; they may be MXFP4
  std::string_view experts_flag = "";    ///< key that enables experts; empty: always
  std::string_view per_token_key = "";   ///< empty: the key is num_experts_per_tok
  bool dense_beside_experts = false;     ///< ModelConfig::dense_beside_experts
  bool is_latent = false;                ///< ModelConfig::latent
  LatentConfig latent = {};              ///< sizes that config.json may omit
  std::optional<RecurrentTraits> recurrent = {};
  bool gate_in_queries = false;  ///< q has for each head its query, and then its gate of attention
  bool expert_bias = false, attention_sinks = false;
  std::string_view draft_layers_key = "";     ///< ModelConfig::draft_layers
  std::string_view draft_prefix = "";         ///< of tensors for drafts, which are not read
  std::vector<KnownValue> known_values = {};  ///< of keys that may be absent
  bool always_scaled = false;                 ///< the file must say how rope is scaled
  /// model_type of checkpoints that hold such a model, in `text_config`, beside other parts.
  std::string_view outer_type = "";

  QkvRows qkv_rows = QkvRows::by_kv_head;
  WeightNames names;
};

/// All families, in the order of the enum.
std::span<const FamilyTraits> all_families();

const FamilyTraits& traits_of(Family family);

/// The table of supported models in README.md, in Markdown.
std::string families_markdown();

}  // namespace pecia::model
