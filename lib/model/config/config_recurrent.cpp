// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/config_recurrent.hpp"

#include <algorithm>
#include <array>

#include "lib/model/config/config_own_layers.hpp"

namespace pecia::model {
namespace {

constexpr int64_t max_recurrent_heads = 1 << 14;
constexpr int64_t least_conv_rows = 2, most_conv_rows = 64;
constexpr std::string_view letters_key = "hybrid_override_pattern";

/// What a word of a list of layers stands for, and the letter that stands for it where each layer is
/// one block. Old files have `mamba` and `attention`.
struct LayerWord {
  std::string_view word, old_word;
  char letter;
  LayerConfig block;
};
constexpr std::array<LayerWord, 4> layer_words = {{
    {"linear_attention",
     "mamba",
     'M',
     {.feed_forward = FeedForward::none, .mixer = MixerKind::recurrence}},
    {"full_attention",
     "attention",
     '*',
     {.feed_forward = FeedForward::none, .mixer = MixerKind::attention}},
    {"mlp", "mlp", '-', {.feed_forward = FeedForward::dense, .mixer = MixerKind::none}},
    {"moe", "moe", 'E', {.feed_forward = FeedForward::experts, .mixer = MixerKind::none}},
}};

/// A list of layers, and the key that it stands under.
struct LayerList {
  std::string_view key;
  std::vector<LayerConfig> blocks;
};

std::vector<LayerConfig> blocks_of_words(const JsonSection& file, const FamilyTraits& traits,
                                         std::string_view key,
                                         const std::vector<std::string>& words) {
  const bool one_block = traits.recurrent->one_block;
  std::vector<LayerConfig> blocks;
  for (const std::string& word : words) {
    const auto* const found = std::ranges::find_if(layer_words, [&](const LayerWord& each) {
      const bool is_legal = one_block || each.block.mixer != MixerKind::none;
      return is_legal && (each.word == word || each.old_word == word);
    });
    if (found == layer_words.end())
      file.refuse<Unsupported>(
          key,
          fmt::format("and {} (layer {}) is not implemented; known are {}", word, blocks.size(),
                      one_block ? "linear_attention, full_attention, mlp and moe"
                                : "linear_attention and full_attention"));
    blocks.push_back(found->block);
    if (!one_block) blocks.back().feed_forward = FeedForward::dense;
  }
  return blocks;
}

std::vector<LayerConfig> blocks_of_letters(const JsonSection& file, const std::string& letters) {
  std::vector<LayerConfig> blocks;
  for (const char letter : letters) {
    const auto* const found = std::ranges::find(layer_words, letter, &LayerWord::letter);
    if (found == layer_words.end())
      file.refuse<Unsupported>(
          letters_key,
          fmt::format("and '{}' (layer {}) is not implemented; known are M, *, - and E", letter,
                      blocks.size()));
    blocks.push_back(found->block);
  }
  return blocks;
}

std::optional<LayerList> listed_layers(const JsonSection& file, const FamilyTraits& traits) {
  for (const std::string_view key : {"layer_types", "layers_block_type"})
    if (const auto words = file.texts(key))
      return LayerList{key, blocks_of_words(file, traits, key, *words)};
  if (!traits.recurrent->one_block) return {};
  const auto letters = file.text(letters_key);
  if (!letters) file.missing(letters_key);
  return LayerList{letters_key, blocks_of_letters(file, *letters)};
}

std::vector<LayerConfig> blocks_by_period(const JsonSection& file, const FamilyTraits& traits,
                                          int64_t layers) {
  std::vector<LayerConfig> blocks(layers, {.mixer = MixerKind::recurrence});
  const int64_t usual = traits.recurrent->full_period;
  if (usual == 0) return blocks;
  const int64_t period = file.integer(traits.period_key, 1, max_model_layers).value_or(usual);
  for (int64_t layer = period - 1; layer < layers; layer += period)
    blocks[layer].mixer = MixerKind::attention;
  return blocks;
}

/// A file may give both the list and the period.
void refuse_other_period(const JsonSection& file, const FamilyTraits& traits,
                         const LayerList& list) {
  if (traits.recurrent->full_period == 0) return;
  const auto period = file.integer(traits.period_key, 1, max_model_layers);
  for (int64_t layer = 0; period && layer < std::ssize(list.blocks); ++layer)
    if ((list.blocks[layer].mixer == MixerKind::attention) != ((layer + 1) % *period == 0))
      file.refuse(traits.period_key,
                  fmt::format("but {} says something else of layer {}; remove one of them",
                              list.key, layer));
}

Rotation read_rotation(const JsonSection& file, const FamilyTraits& traits) {
  const std::string_view key = traits.rotation_key;
  if (key.empty()) return traits.rotates ? Rotation::main : Rotation::none;
  const std::string kind = file.text(key).value_or("nope");
  if (kind != "rope" && kind != "nope")
    file.refuse<Unsupported>(key, "and is not implemented; known are rope and nope");
  return kind == "rope" ? Rotation::main : Rotation::none;
}

/// Where heads may be "auto", all of them are a multiple of the hidden size.
int64_t read_value_dim(const JsonSection& file, const RecurrentTraits& traits, int64_t hidden,
                       int64_t heads) {
  if (traits.expansion.empty())
    return file.integer(traits.value_dim, 1, max_head_dim).value_or(traits.usual.value_dim);
  const int64_t width =
      hidden * file.integer(traits.expansion, 1, 64).value_or(traits.usual_expansion);
  const nlohmann::json* given = file.find(traits.value_dim);
  const bool is_auto = given == nullptr || *given == "auto";
  const int64_t value_dim =
      is_auto ? width / heads : file.integer(traits.value_dim, 1, max_head_dim).value();
  if (value_dim * heads != width || value_dim > max_head_dim)
    fail<InputError>(
        "{}: {} heads of {} numbers of a recurrence are not {} times the hidden size of {}; "
        "correct "
        "{}, {} or {}",
        file.file(), heads, value_dim, width / hidden, hidden, traits.heads, traits.value_dim,
        traits.expansion);
  return value_dim;
}

void read_step_limit(const JsonSection& file, std::string_view key, RecurrentConfig& recurrent) {
  if (key.empty()) return;
  const auto limits = file.numbers(key, 0.0, std::numeric_limits<double>::infinity());
  if (!limits) return;
  if (limits->size() != 2 || limits->front() > limits->back())
    file.refuse(key, "but must be the least and the most that a step may be; correct it");
  recurrent.least_step = limits->front(), recurrent.most_step = limits->back();
}

}  // namespace

int64_t count_blocks(const JsonSection& file, const FamilyTraits& traits) {
  const auto list = listed_layers(file, traits);
  const auto layers = static_cast<int64_t>(list->blocks.size());
  if (layers < 1 || layers > max_model_layers)
    file.refuse(list->key, fmt::format("with {} layers, but must have 1 … {}; correct it", layers,
                                       max_model_layers));
  return layers;
}

std::vector<LayerConfig> read_mixers(const JsonSection& file, const FamilyTraits& traits,
                                     int64_t layers) {
  const auto list = listed_layers(file, traits);
  std::vector<LayerConfig> blocks = list ? list->blocks : blocks_by_period(file, traits, layers);
  if (std::ssize(blocks) != layers)
    file.refuse(list->key, fmt::format("with {} entries, but num_hidden_layers is {}; correct one "
                                       "of them",
                                       blocks.size(), layers));
  if (list) refuse_other_period(file, traits, *list);
  if (std::ranges::count(blocks, MixerKind::attention, &LayerConfig::mixer) == 0)
    file.refuse<Unsupported>(
        list ? list->key : "layer_types",
        "so no layer has attention, which is not implemented; use a model with "
        "some");
  const Rotation rotation = read_rotation(file, traits);
  for (LayerConfig& block : blocks)
    block.rotation = block.mixer == MixerKind::attention ? rotation : Rotation::none;
  return blocks;
}

void read_recurrent(const JsonSection& file, const FamilyTraits& traits, ModelConfig& config) {
  if (!traits.recurrent) return;
  const RecurrentTraits& keys = *traits.recurrent;
  if (std::ranges::count(config.pattern, MixerKind::recurrence, &LayerConfig::mixer) == 0) {
    if (keys.one_block)
      file.refuse<Unsupported>(letters_key,
                               "so no layer is a recurrence; use a model of another type");
    return;
  }
  const auto size = [&](std::string_view key, int64_t least, int64_t most, int64_t usual) {
    return file.integer(key, least, most).value_or(usual);
  };
  RecurrentConfig recurrent = keys.usual;
  recurrent.key_heads = size(keys.key_heads, 1, max_recurrent_heads, keys.usual.key_heads);
  recurrent.key_dim = size(keys.key_dim, 1, max_head_dim, keys.usual.key_dim);
  recurrent.heads = size(keys.heads, 1, max_recurrent_heads, keys.usual.heads);
  if (recurrent.heads % recurrent.key_heads != 0)
    file.refuse(keys.heads, fmt::format("which {} = {} does not divide; correct one of them",
                                        keys.key_heads, recurrent.key_heads));
  recurrent.value_dim = read_value_dim(file, keys, config.hidden, recurrent.heads);
  recurrent.conv_rows = size(keys.conv_rows, least_conv_rows, most_conv_rows, keys.usual.conv_rows);
  if (!keys.conv_bias.empty())
    recurrent.conv_bias = file.flag(keys.conv_bias).value_or(keys.usual.conv_bias);
  read_step_limit(file, keys.step_limit, recurrent);
  config.recurrent = recurrent;
}

}  // namespace pecia::model
