// SPDX-License-Identifier: Apache-2.0
/// quantization_config of config.json, and which matrices stay codes where.

#include <gmock/gmock.h>

#include <fstream>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/error.hpp"
#include "lib/model/config/config.hpp"
#include "lib/model/weights/stored_codes.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::model {
namespace {

using testing::HasSubstr;

ModelConfig read(const std::string& model_type, const std::string& quantization) {
  return parse_config(R"({"model_type": ")" + model_type + R"(", "hidden_size": 256,
      "intermediate_size": 640, "num_attention_heads": 8, "num_key_value_heads": 4,
      "num_hidden_layers": 2, "vocab_size": 100, "max_position_embeddings": 64,
      "torch_dtype": "float16", "quantization_config": )" +
                          quantization + "}",
                      "config.json");
}

std::string refusal(const std::string& quantization, const std::string& model_type = "llama") {
  try {
    read(model_type, quantization);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

const std::string gptq_64 = R"({"quant_method": "gptq", "bits": 4, "group_size": 64})";

TEST(Quantization, OfGptqSaysGroupsZerosAndOrder) {
  const StoredQuantization plain = read("llama", gptq_64).quantization.value();
  EXPECT_EQ(plain.form, StoredForm::gptq);
  EXPECT_EQ(plain.group, 64);
  EXPECT_EQ(plain.shared_by(), 64);
  EXPECT_TRUE(plain.zeros_less_one);
  EXPECT_EQ(plain.code(), DType::int4);
  const StoredQuantization other =
      *read("llama", R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": true,
                         "checkpoint_format": "gptq_v2"})")
           .quantization;
  EXPECT_EQ(other.group, 0);
  EXPECT_FALSE(other.zeros_less_one);
  EXPECT_EQ(other.code(), std::nullopt);
}

TEST(Quantization, OfEightBitsInWordsStaysCodesWhereARowHasOneScale) {
  const auto code = [](const std::string& text) {
    return read("llama", text).quantization->code();
  };
  const auto packed = [](const std::string& weights) {
    return R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
               "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, )" +
           weights + "}}}}";
  };
  EXPECT_EQ(code(packed(R"("strategy": "channel")")), DType::int8);
  EXPECT_EQ(code(packed(R"("strategy": "channel", "symmetric": false)")), std::nullopt);
  EXPECT_EQ(code(packed(R"("strategy": "group", "group_size": 64)")), std::nullopt);
  EXPECT_EQ(code(R"({"quant_method": "gptq", "bits": 8, "group_size": 64})"), std::nullopt);
  const ModelConfig config = read("llama", packed(R"("strategy": "group", "group_size": 64)"));
  EXPECT_EQ(config.quantization->name(), "packed int8");
  EXPECT_THAT(why_widened(config, MatrixKind::q, CodeUse{}), HasSubstr("one scale for each row"));
}

TEST(Quantization, IsAbsentWhereNothingSaysSo) {
  EXPECT_FALSE(read("llama", "null").quantization);
  EXPECT_FALSE(read("llama", "false").quantization);
}

TEST(Quantization, RefusesWhatIsNotImplementedByName) {
  EXPECT_THAT(refusal(R"({"quant_method": "hqq"})"), HasSubstr("quantization_config.quant_method"));
  EXPECT_THAT(refusal(R"({"bits": 4})"), HasSubstr("quant_method"));
  EXPECT_THAT(refusal(R"({"quant_method": "gptq", "bits": 3, "group_size": 64})"),
              HasSubstr("quantization_config.bits is 3"));
  EXPECT_THAT(refusal(R"({"quant_method": "gptq", "bits": 4, "group_size": 96})"),
              HasSubstr("group_size is 96"));
  EXPECT_THAT(refusal(R"({"quant_method": "gptq", "bits": 4, "group_size": 64,
                          "checkpoint_format": "marlin"})"),
              HasSubstr("checkpoint_format is \"marlin\""));
  EXPECT_THAT(refusal(R"({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*": {}}})"),
              HasSubstr("dynamic"));
  EXPECT_THAT(refusal(R"({"quant_method": "awq", "bits": 4, "version": "gemv"})"),
              HasSubstr("version is \"gemv\""));
  EXPECT_THAT(refusal(R"({"quant_method": "awq", "bits": 8})"), HasSubstr("bits is 8"));
  EXPECT_THAT(refusal(R"({"quant_method": "fp8", "fmt": "e5m2"})"), HasSubstr("fmt is \"e5m2\""));
}

std::string compressed(const std::string& format, const std::string& weights,
                       const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format + R"(",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": )" +
         weights + "}}" + more + "}";
}

TEST(Quantization, OfCompressedTensorsHasThreeFormats) {
  const auto form_of = [](const std::string& text) {
    return read("llama", text).quantization->form;
  };
  EXPECT_EQ(form_of(compressed("pack-quantized", R"({"num_bits": 4, "type": "int",
                               "strategy": "group", "group_size": 32, "symmetric": false})")),
            StoredForm::packed);
  EXPECT_EQ(form_of(compressed("int-quantized",
                               R"({"num_bits": 8, "type": "int", "strategy": "channel"})")),
            StoredForm::int8);
  EXPECT_EQ(form_of(compressed("float-quantized",
                               R"({"num_bits": 8, "type": "float", "strategy": "tensor"})")),
            StoredForm::fp8);
  EXPECT_EQ(form_of(compressed("nvfp4-pack-quantized", R"({"num_bits": 4, "type": "float",
                               "strategy": "tensor_group", "group_size": 16})")),
            StoredForm::nvfp4);
  EXPECT_THAT(refusal(compressed("nvfp4-pack-quantized",
                                 R"({"num_bits": 4, "type": "float", "group_size": 32,
                                     "strategy": "tensor_group"})")),
              HasSubstr("weights.group_size is 32, and only 16"));
  EXPECT_THAT(refusal(compressed("mxfp4-pack-quantized", R"({"num_bits": 4})")),
              HasSubstr("format is \"mxfp4-pack-quantized\""));
  EXPECT_THAT(refusal(compressed("pack-quantized", R"({"num_bits": 2, "strategy": "group"})")),
              HasSubstr("config_groups.group_0.weights.num_bits is 2, and only 4 or 8"));
  EXPECT_THAT(refusal(compressed("int-quantized", R"({"num_bits": 8, "symmetric": false})")),
              HasSubstr("symmetric is false"));
  EXPECT_THAT(refusal(compressed("int-quantized", R"({"num_bits": 8, "strategy": "channel"})",
                                 R"(, "kv_cache_scheme": {"num_bits": 8})")),
              HasSubstr("kv_cache_scheme"));
}

TEST(Quantization, OfModeloptIsInTheConfigOrBesideIt) {
  const StoredQuantization nvfp4 =
      *read("llama", R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})").quantization;
  EXPECT_EQ(nvfp4.form, StoredForm::nvfp4);
  EXPECT_TRUE(nvfp4.by_modelopt);
  EXPECT_EQ(
      read("llama", R"({"quant_method": "modelopt", "quant_algo": "FP8"})").quantization->form,
      StoredForm::fp8);
  EXPECT_THAT(refusal(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})"),
              HasSubstr("quant_algo is \"W4A8_AWQ\", and only NVFP4 or FP8"));
  EXPECT_THAT(refusal(R"({"quant_method": "modelopt"})"), HasSubstr("quant_algo"));

  const test::TempFolder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "hidden_size": 64,
      "intermediate_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 9,
      "max_position_embeddings": 8})";
  const auto with = [&](const std::string& beside) {
    std::ofstream(folder / "hf_quant_config.json") << beside;
    return read_config(folder.path()).quantization;
  };
  const auto older = with(R"({"producer": {"name": "modelopt"}, "quantization": {
      "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}})");
  ASSERT_TRUE(older);
  EXPECT_EQ(older->form, StoredForm::nvfp4);
  EXPECT_FALSE(with(R"({"quantization": {"quant_algo": null}})"));
}

TEST(CodeUse, IsOfWholeGroupsInEveryPartOfARow) {
  const ModelConfig config = read("llama", gptq_64);
  const auto type = [&](MatrixKind kind, const CodeUse& use) {
    return resident_code(config, kind, use);
  };
  EXPECT_EQ(type(MatrixKind::down, codes_kept(config, 1, false, 1, false)), DType::int4);
  EXPECT_EQ(type(MatrixKind::down, codes_kept(config, 2, false, 1, false)),
            std::nullopt);                                                              // 2 · 320
  EXPECT_EQ(type(MatrixKind::o, codes_kept(config, 2, false, 1, false)), DType::int4);  // 2 · 128
  EXPECT_EQ(type(MatrixKind::gate, codes_kept(config, 4, false, 1, false)), DType::int4);
  EXPECT_EQ(type(MatrixKind::head, codes_kept(config, 1, false, 1, false)), std::nullopt);
  EXPECT_EQ(type(MatrixKind::q, codes_kept(config, 1, true, 1, false)), std::nullopt);
  EXPECT_EQ(type(MatrixKind::q, CodeUse{.kept = false}), std::nullopt);
  EXPECT_EQ(why_widened(config, MatrixKind::o, codes_kept(config, 2, false, 1, false)), "");
  EXPECT_THAT(why_widened(config, MatrixKind::down, codes_kept(config, 2, false, 1, false)),
              HasSubstr("2 parts of a row of 640"));
}

TEST(CodeUse, KeepsStoredFp8OnGpusAloneInBlocksThatProductsTake) {
  const auto of_blocks = [](int64_t columns) {
    return read("llama", fmt::format(R"({{"quant_method": "fp8", "weight_block_size": [128, {}]}})",
                                     columns));
  };
  const ModelConfig blocks = of_blocks(128), others = of_blocks(64);
  const ModelConfig rows = read("llama", R"({"quant_method": "fp8"})");
  const CodeUse cpus = codes_kept(blocks, 2, false, 1, false),
                gpus = codes_kept(blocks, 2, false, 1, true);
  EXPECT_EQ(resident_code(blocks, MatrixKind::q, cpus), std::nullopt);
  EXPECT_EQ(resident_code(blocks, MatrixKind::q, gpus), DType::fp8);
  EXPECT_EQ(resident_code(blocks, MatrixKind::o, gpus), DType::fp8);       // 2 · 128
  EXPECT_EQ(resident_code(blocks, MatrixKind::down, gpus), std::nullopt);  // 2 · 320
  EXPECT_EQ(resident_code(rows, MatrixKind::down, gpus), DType::fp8);
  EXPECT_EQ(resident_code(others, MatrixKind::q, gpus), std::nullopt);
  EXPECT_EQ(codes_kept(rows, 2, true, 1, true).kept, false);
  EXPECT_THAT(why_widened(blocks, MatrixKind::q, cpus), HasSubstr("no products on CPUs"));
  EXPECT_EQ(why_widened(blocks, MatrixKind::q, gpus), "");
  EXPECT_THAT(why_widened(others, MatrixKind::q, gpus),
              HasSubstr("blocks of 128 columns, and not of 64"));
  EXPECT_EQ(resident_row_bytes(blocks, DType::fp8, 640), 640 + 5 * 4);
  EXPECT_EQ(resident_row_bytes(rows, DType::fp8, 640), 640 + 4);
}

TEST(CodeUse, KeepsNvfp4WhereNoCutDividesABlockAlsoForTheBitsOfLayouts) {
  const ModelConfig config =
      read("llama", R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})");
  const auto type = [&](MatrixKind kind, const CodeUse& use) {
    return resident_code(config, kind, use);
  };
  EXPECT_EQ(type(MatrixKind::q, codes_kept(config, 3, false, 1, false)), DType::nvfp4);
  EXPECT_EQ(type(MatrixKind::down, codes_kept(config, 8, false, 1, true)), DType::nvfp4);  // 8 · 80
  EXPECT_EQ(type(MatrixKind::down, codes_kept(config, 16, false, 1, true)), std::nullopt);
  EXPECT_EQ(type(MatrixKind::down, codes_kept(config, 2, true, 1, false)), DType::nvfp4);
  EXPECT_EQ(type(MatrixKind::head, codes_kept(config, 1, false, 1, false)), std::nullopt);
  EXPECT_EQ(resident_row_bytes(config, DType::nvfp4, 640), 640 / 2 + 640 / 16);
  EXPECT_THAT(why_widened(config, MatrixKind::down, codes_kept(config, 16, false, 1, true)),
              HasSubstr("16 parts of a row of 640"));
}

TEST(CodeUse, KeepsRowsOfOtherMatricesModulesWhereTheyFollowEachOther) {
  const CodeUse use = codes_kept(read("llama", gptq_64), 1, false, 1, false);
  const ModelConfig phi3 = read("phi3", gptq_64), internlm2 = read("internlm2", gptq_64);
  for (const MatrixKind kind : {MatrixKind::k, MatrixKind::gate, MatrixKind::up})
    EXPECT_EQ(resident_code(phi3, kind, use), DType::int4);
  EXPECT_EQ(resident_code(internlm2, MatrixKind::gate, use), DType::int4);
  EXPECT_EQ(resident_code(internlm2, MatrixKind::k, use), std::nullopt);  // by KV head
  EXPECT_EQ(why_widened(internlm2, MatrixKind::k, use), "its rows alternate with another matrix's");
}

TEST(CodeUse, CountsTheBytesThatCodesSave) {
  const ModelConfig config = read("llama", gptq_64);
  const int64_t rows = 2 * (256 + 128 + 128 + 256 + 640 + 640), of_down = 2 * 256;
  const auto saved = [](int64_t columns) { return columns * 2 - (columns / 2 + columns / 64 * 8); };
  EXPECT_EQ(bytes_by_codes(config, DType::fp16, {}), -(rows * saved(256) + of_down * saved(640)));
  EXPECT_EQ(active_bytes_by_codes(config, DType::fp16, {}),
            bytes_by_codes(config, DType::fp16, {}));
  EXPECT_EQ(bytes_by_codes(config, DType::fp16, {.kept = false}), 0);
}

}  // namespace
}  // namespace pecia::model
