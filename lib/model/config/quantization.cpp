// SPDX-License-Identifier: Apache-2.0
#include "lib/model/config/quantization.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"
#include "lib/model/config/config_json.hpp"

namespace pecia::model {
namespace {

constexpr std::string_view known_methods =
    "gptq, awq, compressed-tensors, fp8, modelopt and, for gpt_oss, mxfp4";

/// Throws Unsupported for a value other than `known`, if there is one.
void require_text(const JsonSection& file, std::string_view key,
                  std::initializer_list<std::string_view> known) {
  const auto value = file.text(key);
  if (value && std::ranges::find(known, *value) == known.end())
    file.refuse<Unsupported>(key,
                             fmt::format("and only {} is implemented", fmt::join(known, " or ")));
}

void require_flag(const JsonSection& file, std::string_view key, bool known) {
  const auto value = file.flag(key);
  if (value && *value != known)
    file.refuse<Unsupported>(key, fmt::format("and only {} is implemented", known));
}

/// Returns the number of bits, and throws Unsupported unless it is known.
int bits_of(const JsonSection& file, std::string_view key, std::initializer_list<int64_t> known) {
  const int64_t bits = file.required_integer(key, 1, 64);
  if (std::ranges::find(known, bits) == known.end())
    file.refuse<Unsupported>(key, fmt::format("and only {} is implemented; use a model with it",
                                              fmt::join(known, " or ")));
  return static_cast<int>(bits);
}

/// Throws Unsupported for a list or an object that is not empty.
void require_nothing(const JsonSection& file, std::string_view key) {
  const nlohmann::json* const value = file.find(key);
  if (value != nullptr && !value->is_null() && !value->empty())
    file.refuse<Unsupported>(key, "which is not implemented; use a model without it");
}

/// 0 for whole rows, which the file calls −1.
int64_t group_size(const JsonSection& file, std::string_view key) {
  const int64_t group = file.integer(key, -1, 1 << 20).value_or(-1);
  const bool known =
      group == -1 || group == 32 || group == 64 || (group > 0 && group % int4_group == 0);
  if (!known)
    file.refuse<Unsupported>(key, "and only 32, 64, multiples of 128 and -1 are implemented");
  return std::max<int64_t>(0, group);
}

StoredQuantization gptq(const JsonSection& file) {
  require_text(file, "checkpoint_format", {"gptq", "gptq_v2"});
  require_flag(file, "is_marlin_format", false);
  require_flag(file, "lm_head", false);
  require_nothing(file, "dynamic");
  return {.form = StoredForm::gptq,
          .bits = bits_of(file, "bits", {4, 8}),
          .group = group_size(file, "group_size"),
          .zeros = true,
          .zeros_less_one = file.text("checkpoint_format") != "gptq_v2",
          .reordered = file.flag("desc_act").value_or(false)};
}

StoredQuantization awq(const JsonSection& file) {
  bits_of(file, file.names("bits") ? "bits" : "w_bit", {4});
  require_text(file, "version", {"gemm", "GEMM"});
  return {.form = StoredForm::awq,
          .group = group_size(file, file.names("group_size") ? "group_size" : "q_group_size"),
          .zeros = true};
}

/// The side lengths of fp8's blocks.
void read_blocks(const JsonSection& file, std::string_view key, StoredQuantization& to) {
  const auto sizes = file.integers(key, 1, 1 << 20);
  if (!sizes) return;
  if (sizes->size() != 2) file.refuse(key, "and not two sizes");
  to.block_rows = (*sizes)[0], to.block_columns = (*sizes)[1];
}

StoredQuantization fp8(const JsonSection& file) {
  require_text(file, "fmt", {"e4m3", "float8_e4m3fn"});
  StoredQuantization found{.form = StoredForm::fp8};
  read_blocks(file, "weight_block_size", found);
  return found;
}

/// What its scales would round beside the weights, activations and cached keys, stays as it is.
StoredQuantization modelopt(const JsonSection& file) {
  require_text(file, "quant_algo", {"NVFP4", "FP8"});
  const std::optional<std::string> algorithm = file.text("quant_algo");
  if (!algorithm) file.missing("quant_algo");
  if (*algorithm == "FP8") return {.form = StoredForm::fp8};
  if (const auto group = file.integer("group_size", 1, 1 << 20); group && *group != nvfp4_block)
    file.refuse<Unsupported>("group_size", fmt::format("and only {} is implemented", nvfp4_block));
  return {.form = StoredForm::nvfp4, .group = nvfp4_block, .by_modelopt = true};
}

/// Activations that the format would round stay as they are.
StoredQuantization compressed_tensors(const JsonSection& file) {
  for (const char* key : {"kv_cache_scheme", "transform_config"}) require_nothing(file, key);
  if (const auto sparsity = file.section("sparsity_config"))
    require_text(*sparsity, "format", {"dense"});
  const auto groups = file.section("config_groups");
  if (!groups) file.missing("config_groups");
  if (groups->object().size() != 1)
    file.refuse<Unsupported>("config_groups", "and only one group is implemented");
  const JsonSection group = groups->section(groups->object().begin().key()).value();
  const auto targets = group.texts("targets");
  if (!targets || *targets != std::vector<std::string>{"Linear"})
    group.refuse<Unsupported>("targets", "and only [\"Linear\"] is implemented");
  require_nothing(group, "output_activations");
  const auto weights = group.section("weights");
  if (!weights) group.missing("weights");
  require_flag(*weights, "dynamic", false);

  const std::string format = file.text("format").value_or("");
  const std::string strategy = weights->text("strategy").value_or("tensor");
  StoredQuantization found;
  if (format == "pack-quantized") {
    found.form = StoredForm::packed;
    require_text(*weights, "type", {"int"});
    found.bits = bits_of(*weights, "num_bits", {4, 8});
    require_text(*weights, "strategy", {"group", "channel"});
    if (strategy == "group") found.group = group_size(*weights, "group_size");
    found.zeros = !weights->flag("symmetric").value_or(true);
    // Static order is kept in the codes' places; only the order by groups moves them.
    found.reordered = weights->text("actorder").value_or("") == "group";
  } else if (format == "int-quantized") {
    found.form = StoredForm::int8;
    require_text(*weights, "type", {"int"});
    bits_of(*weights, "num_bits", {8});
    require_text(*weights, "strategy", {"channel", "tensor"});
    require_flag(*weights, "symmetric", true);
  } else if (format == "float-quantized") {
    found.form = StoredForm::fp8;
    require_text(*weights, "type", {"float"});
    bits_of(*weights, "num_bits", {8});
    require_text(*weights, "strategy", {"channel", "tensor", "block"});
    require_flag(*weights, "symmetric", true);
    if (strategy == "block") read_blocks(*weights, "block_structure", found);
    if (strategy == "block" && found.block_rows == 0) weights->missing("block_structure");
  } else if (format == "nvfp4-pack-quantized") {
    found.form = StoredForm::nvfp4;
    require_text(*weights, "type", {"float"});
    bits_of(*weights, "num_bits", {4});
    require_text(*weights, "strategy", {"tensor_group"});
    require_flag(*weights, "symmetric", true);
    found.group = weights->integer("group_size", 1, 1 << 20).value_or(nvfp4_block);
    if (found.group != nvfp4_block)
      weights->refuse<Unsupported>("group_size",
                                   fmt::format("and only {} is implemented", nvfp4_block));
  } else {
    file.refuse<Unsupported>("format",
                             "and only pack-quantized, int-quantized, float-quantized and "
                             "nvfp4-pack-quantized are implemented");
  }
  return found;
}

}  // namespace

std::string StoredQuantization::name() const {
  switch (form) {
    case StoredForm::mxfp4:
      return "mxfp4";
    case StoredForm::gptq:
      return fmt::format("gptq int{}", bits);
    case StoredForm::awq:
      return "awq int4";
    case StoredForm::packed:
      return fmt::format("packed int{}", bits);
    case StoredForm::int8:
      return "int8";
    case StoredForm::fp8:
      return "fp8";
    case StoredForm::nvfp4:
      return "nvfp4";
  }
  return "?";
}

std::optional<DType> StoredQuantization::code() const {
  switch (form) {
    case StoredForm::mxfp4:
      return DType::mxfp4;
    case StoredForm::gptq:
    case StoredForm::awq:
    case StoredForm::packed:
      if (reordered) return {};
      if (bits == 4) return DType::int4;
      return form == StoredForm::packed && group == 0 && !zeros ? std::optional(DType::int8)
                                                                : std::nullopt;
    case StoredForm::int8:
      return DType::int8;
    case StoredForm::fp8:
      return block_columns == 0 || block_columns == fp8_block ? std::optional(DType::fp8)
                                                              : std::nullopt;
    case StoredForm::nvfp4:
      return DType::nvfp4;
  }
  return {};
}

int64_t StoredQuantization::shared_by() const {
  return group == 32 || group == 64 ? group : int4_group;
}

std::optional<StoredQuantization> read_quantization(const JsonSection& file,
                                                    const JsonSection* beside,
                                                    bool packed_experts) {
  constexpr std::string_view only_mxfp4 =
      "and only quant_method mxfp4 is implemented for this family";
  for (const char* key : {"quantization_config", "compression_config"}) {
    const nlohmann::json* const value = file.find(key);
    if (value == nullptr || value->is_null() || *value == false || *value == 0) continue;
    const auto section = file.section(key);
    const std::string method =
        section->text("quant_method").value_or(key[0] == 'c' ? "compressed-tensors" : "");
    if (packed_experts) {
      if (method == "mxfp4") return StoredQuantization{};
      file.refuse<Unsupported>(key, only_mxfp4);
    }
    if (method == "gptq") return gptq(*section);
    if (method == "awq") return awq(*section);
    if (method == "compressed-tensors") return compressed_tensors(*section);
    if (method == "fp8") return fp8(*section);
    if (method == "modelopt") return modelopt(*section);
    section->refuse<Unsupported>(
        "quant_method",
        fmt::format("and only {} are implemented; use a model without it", known_methods));
  }
  const auto of_modelopt = beside != nullptr ? beside->section("quantization") : std::nullopt;
  if (!of_modelopt || !of_modelopt->text("quant_algo")) return {};
  if (packed_experts) beside->refuse<Unsupported>("quantization", only_mxfp4);
  return modelopt(*of_modelopt);
}

}  // namespace pecia::model
