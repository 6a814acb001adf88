// SPDX-License-Identifier: Apache-2.0
/// The matrices and vectors of recurrent layers are those rows of the checkpoint's tensors that the
/// family packs them in, whole and in parts, and stay the same on other devices.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/api/backend.hpp"
#include "lib/base/core/error.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "lib/model/weights/phantom_weights.hpp"
#include "tests/model/hybrid_checkpoints.hpp"

namespace pecia::model {
namespace {

using namespace hybrid_sizes;
using testing::HasSubstr;

/// Where each head's rows begin: of a matrix in its tensor, and of the convolution's channels.
struct Places {
  std::string name;
  std::function<int64_t(int64_t)> first;
};
struct Packing {
  Places q, k, v, z, a, b;
  int64_t q_channel, k_channel, v_channel;
};

Packing packing_of(const std::string& type) {
  const auto of_keys = [](int64_t from) {
    return [=](int64_t head) { return from + head * key_dim; };
  };
  const auto of_values = [](int64_t from) {
    return [=](int64_t head) { return from + head * value_dim; };
  };
  const auto of_heads = [](int64_t from) { return [=](int64_t head) { return from + head; }; };
  if (type == "granitemoehybrid") {
    const std::string all = "in_proj.weight";
    return {{all, of_keys(2 * values + keys)},
            {all, of_keys(2 * values)},
            {all, of_values(values)},
            {all, of_values(0)},
            {all, of_heads(2 * values + 2 * keys)},
            {},
            values + keys,
            values,
            0};
  }
  if (type == "qwen3_5_text")
    return {{"in_proj_qkv.weight", of_keys(0)},
            {"in_proj_qkv.weight", of_keys(keys)},
            {"in_proj_qkv.weight", of_values(2 * keys)},
            {"in_proj_z.weight", of_values(0)},
            {"in_proj_a.weight", of_heads(0)},
            {"in_proj_b.weight", of_heads(0)},
            0,
            keys,
            2 * keys};
  // Of each key head 14 rows: q 3, k 3, v of two heads 4, z of them 4; and b of two heads, a of them.
  const auto by_key_head = [](int64_t from) {
    return [=](int64_t head) { return 14 * head + from; };
  };
  const auto in_pairs = [](int64_t rows, int64_t from, int64_t of_each) {
    return [=](int64_t head) { return head / 2 * rows + from + head % 2 * of_each; };
  };
  return {{"in_proj_qkvz.weight", by_key_head(0)},
          {"in_proj_qkvz.weight", by_key_head(3)},
          {"in_proj_qkvz.weight", in_pairs(14, 6, value_dim)},
          {"in_proj_qkvz.weight", in_pairs(14, 10, value_dim)},
          {"in_proj_ba.weight", in_pairs(4, 2, 1)},
          {"in_proj_ba.weight", in_pairs(4, 0, 1)},
          0,
          keys,
          2 * keys};
}

/// `count` rows of a tensor from each of these rows on.
std::vector<float> rows_of(const CheckpointFile::Tensor& tensor, const std::vector<int64_t>& firsts,
                           int64_t count) {
  const auto width = static_cast<int64_t>(tensor.values.size()) / tensor.shape.front();
  std::vector<float> rows;
  for (const int64_t first : firsts)
    rows.insert(rows.end(), tensor.values.begin() + first * width,
                tensor.values.begin() + (first + count) * width);
  return rows;
}

std::vector<float> numbers_of(const TensorView& vector) {
  EXPECT_EQ(vector.dtype(), DType::fp32);
  return {vector.as<float>(), vector.as<float>() + vector.elements()};
}

class RecurrentWeightsOf : public testing::TestWithParam<const char*> {};

TEST_P(RecurrentWeightsOf, AreTheRowsOfTheirHeads) {
  const ModelConfig config = hybrid_model(GetParam());
  const CheckpointFile file = hybrid_file(GetParam());
  const Packing packing = packing_of(GetParam());
  const bool mamba = !config.recurrent->corrects;
  const std::string mixer = mamba ? "model.layers.0.mamba." : "model.layers.0.linear_attn.";
  const auto tensor = [&](const std::string& name) { return file.tensors.at(mixer + name); };
  for (const int count : {1, 2, 4})
    for (int index = 0; index < count; ++index) {
      const Weights loaded = load(config, file, {}, {count, index});
      EXPECT_FALSE(loaded.layers[0].has_attention || loaded.layers[1].recurrent);
      const RecurrentWeights& part = loaded.layers[0].recurrent.value();
      std::vector<int64_t> own(heads / count), own_keys;
      std::iota(own.begin(), own.end(), heads / count * index);
      for (const int64_t head : own)
        if (own_keys.empty() || own_keys.back() != head / 2) own_keys.push_back(head / 2);
      const auto expect = [&](const LinearWeight& matrix, const Places& places,
                              const std::vector<int64_t>& of, int64_t rows) {
        std::vector<int64_t> firsts;
        for (const int64_t head : of) firsts.push_back(places.first(head));
        EXPECT_EQ(values_of(matrix), rows_of(tensor(places.name), firsts, rows));
        EXPECT_EQ(matrix.parts.size(), 1u);
      };
      expect(part.q, packing.q, own_keys, key_dim);
      expect(part.k, packing.k, own_keys, key_dim);
      expect(part.v, packing.v, own, value_dim);
      expect(part.z, packing.z, own, value_dim);
      expect(part.a, packing.a, own, 1);
      if (!mamba) expect(part.b, packing.b, own, 1);

      const auto expect_channels = [&](const TensorView& conv, const TensorView& bias,
                                       int64_t first, const std::vector<int64_t>& of,
                                       int64_t each) {
        std::vector<int64_t> channels;
        for (const int64_t head : of) channels.push_back(first + head * each);
        EXPECT_EQ(numbers_of(conv), rows_of(tensor("conv1d.weight"), channels, each));
        EXPECT_EQ(conv.size(1), conv_rows);
        ASSERT_EQ(static_cast<bool>(bias), mamba);
        if (bias) {
          EXPECT_EQ(numbers_of(bias), rows_of(tensor("conv1d.bias"), channels, each));
        }
      };
      expect_channels(part.q_conv, part.q_conv_bias, packing.q_channel, own_keys, key_dim);
      expect_channels(part.k_conv, part.k_conv_bias, packing.k_channel, own_keys, key_dim);
      expect_channels(part.v_conv, part.v_conv_bias, packing.v_channel, own, value_dim);
      EXPECT_EQ(numbers_of(part.step_bias), rows_of(tensor("dt_bias"), own, 1));
      std::vector<float> rates;
      for (const float a : rows_of(tensor("A_log"), own, 1)) rates.push_back(-std::exp(a));
      EXPECT_EQ(numbers_of(part.rate), rates);
      ASSERT_EQ(static_cast<bool>(part.skip), mamba);
      if (mamba) {
        EXPECT_EQ(numbers_of(part.skip), rows_of(tensor("D"), own, 1));
      }

      std::vector<int64_t> channels;  // of all heads of the part
      for (const int64_t head : own)
        for (int64_t i = 0; i < value_dim; ++i) channels.push_back(head * value_dim + i);
      // No 1 is added, as to other norms.
      EXPECT_EQ(numbers_of(part.norm),
                mamba ? rows_of(tensor("norm.weight"), channels, 1) : tensor("norm.weight").values);
      std::vector<float> columns;
      for (int64_t row = 0; row < hidden; ++row)
        for (const int64_t channel : channels)
          columns.push_back(tensor("out_proj.weight").values[row * values + channel]);
      EXPECT_EQ(values_of(part.o), columns);
    }
}

TEST_P(RecurrentWeightsOf, OfACutAreThatCutOfTheWhole) {
  const ModelConfig config = hybrid_model(GetParam());
  const Weights whole = load(config, hybrid_file(GetParam()));
  for (int index = 0; index < 4; ++index) {
    const Weights half = load(config, hybrid_file(GetParam()), {}, {2, index / 2});
    LayerWeights once = cut_layer(whole.layers[0], config, 0, {}, {4, index});
    LayerWeights twice = cut_layer(half.layers[0], config, 0, {2, index / 2}, {4, index});
    std::vector<std::vector<float>> matrices;
    once.for_each_matrix(
        [&](MatrixKind, LinearWeight& matrix) { matrices.push_back(values_of(matrix)); });
    size_t next = 0;
    twice.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
      EXPECT_EQ(values_of(matrix), matrices[next++]) << role_of(kind).name;
    });
    for (size_t i = 0; i < once.recurrent->vectors().size(); ++i) {
      const TensorView &a = *once.recurrent->vectors()[i], &b = *twice.recurrent->vectors()[i];
      ASSERT_EQ(static_cast<bool>(a), static_cast<bool>(b));
      if (!a) continue;
      EXPECT_EQ(numbers_of(a), numbers_of(b));
    }
  }
}

TEST_P(RecurrentWeightsOf, AreConvertedAndCountedAsParameters) {
  const ModelConfig config = hybrid_model(GetParam());
  int64_t elements = 0;
  const CheckpointFile file = hybrid_file(GetParam());
  for (const auto& [name, tensor] : file.tensors)
    elements += static_cast<int64_t>(tensor.values.size());
  EXPECT_EQ(config.parameters(), elements);
  const Weights wide = load(config, file), narrow = load(config, file, DType::bf16);
  EXPECT_EQ(wide.resident_bytes(), 4 * elements);
  for (size_t layer = 0; layer < 2; ++layer) {
    std::vector<std::vector<float>> matrices;
    wide.layers[layer].for_each_matrix(
        [&](MatrixKind, const LinearWeight& matrix) { matrices.push_back(values_of(matrix)); });
    size_t next = 0;
    narrow.layers[layer].for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      EXPECT_EQ(values_of(matrix), matrices[next++]) << role_of(kind).name;  // exact in bf16
      EXPECT_EQ(matrix.parts.front().weight.dtype(), DType::bf16);
    });
  }
  EXPECT_EQ(numbers_of(narrow.layers[0].recurrent->rate),
            numbers_of(wide.layers[0].recurrent->rate));
}

TEST_P(RecurrentWeightsOf, HaveTheShapesThatPhantomsHave) {
  const ModelConfig config = hybrid_model(GetParam());
  for (int index = 0; index < 4; ++index) {
    const Weights real = load(config, hybrid_file(GetParam()), DType::bf16, {4, index});
    device::PhantomDevice device({"phantom", 0, 1, "", ""}, int64_t{1} << 30);
    const PhantomWeights phantom(config, DType::bf16, {4, index}, device);
    for (size_t layer = 0; layer < 2; ++layer) {
      LayerWeights a = real.layers[layer], b = phantom.layers[layer];
      std::vector<std::pair<MatrixKind, std::vector<int64_t>>> shapes;
      a.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
        shapes.push_back({kind, {matrix.out(), matrix.in()}});
      });
      size_t next = 0;
      b.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
        ASSERT_LT(next, shapes.size());
        EXPECT_EQ(kind, shapes[next].first);
        EXPECT_EQ((std::vector<int64_t>{matrix.out(), matrix.in()}), shapes[next++].second);
      });
      EXPECT_EQ(next, shapes.size());
      const auto expect_like = [](const TensorView& x, const TensorView& y) {
        ASSERT_EQ(static_cast<bool>(x), static_cast<bool>(y));
        EXPECT_EQ(x ? x.elements() : 0, y ? y.elements() : 0);
      };
      for (size_t i = 0; i < a.norms().size(); ++i) expect_like(*a.norms()[i], *b.norms()[i]);
      ASSERT_EQ(a.made().size(), b.made().size());
      for (size_t i = 0; i < a.made().size(); ++i) expect_like(*a.made()[i], *b.made()[i]);
    }
  }
}

TEST_P(RecurrentWeightsOf, AreCopiedAndRoundedButForWhatMakesTheDecay) {
  const Weights host = load(hybrid_model(GetParam()), hybrid_file(GetParam()));
  const auto device = device::make_host_device(1);
  const auto stream = device->make_stream();
  const auto backend = kernels::make_reference_backend();
  for (const Quantize quantize : {Quantize::nothing, Quantize::int8}) {
    const DeviceWeights there(host, *device, *stream, *backend, quantize);
    RecurrentWeights of = *host.layers[0].recurrent, copy = *there.layers[0].recurrent;
    for (size_t i = 0; i < of.vectors().size(); ++i) {
      ASSERT_EQ(static_cast<bool>(*of.vectors()[i]), static_cast<bool>(*copy.vectors()[i]));
      if (!*of.vectors()[i]) continue;
      EXPECT_NE(of.vectors()[i]->data(), copy.vectors()[i]->data());
      EXPECT_EQ(numbers_of(*of.vectors()[i]), numbers_of(*copy.vectors()[i]));
    }
    const bool rounds = quantize == Quantize::int8;
    EXPECT_EQ(copy.q.parts.front().weight.dtype(), rounds ? DType::int8 : DType::fp32);
    EXPECT_EQ(values_of(copy.a), values_of(of.a));
    EXPECT_EQ(values_of(copy.b), values_of(of.b));
    if (!rounds) {
      EXPECT_EQ(values_of(copy.o), values_of(of.o));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentWeightsOf,
                         testing::Values("qwen3_5_text", "qwen3_next", "granitemoehybrid"));

/// Mamba-2, attention, a dense feed-forward and experts without gates, under names of its own.
CheckpointFile nemotron_file() {
  CheckpointFile file;
  file.add("backbone.embeddings.weight", {3, hidden}, 1);
  file.add("backbone.norm_f.weight", {hidden}, 2);
  file.add("lm_head.weight", {3, hidden}, 3);
  for (int layer = 0; layer < 4; ++layer)
    file.add(fmt::format("backbone.layers.{}.norm.weight", layer), {hidden}, 4);
  const CheckpointFile mamba = hybrid_file("granitemoehybrid");
  for (const auto& [name, tensor] : mamba.tensors)
    if (const size_t at = name.find("mamba."); at != std::string::npos)
      file.tensors["backbone.layers.0.mixer." + name.substr(at + 6)] = tensor;
  for (const std::string name : {"q", "o"})
    file.add("backbone.layers.1.mixer." + name + "_proj.weight",
             name == "q" ? std::vector<int64_t>{8, hidden} : std::vector<int64_t>{hidden, 8}, 10);
  for (const std::string name : {"k", "v"})
    file.add("backbone.layers.1.mixer." + name + "_proj.weight", {4, hidden}, 11);
  file.add("backbone.layers.2.mixer.up_proj.weight", {6, hidden}, 12);
  file.add("backbone.layers.2.mixer.down_proj.weight", {hidden, 6}, 13);
  const std::string moe = "backbone.layers.3.mixer.";
  file.add(moe + "gate.weight", {2, hidden}, 14);
  file.add(moe + "gate.e_score_correction_bias", {2}, 15);
  for (const std::string name : {"experts.0", "experts.1", "shared_experts"}) {
    file.add(moe + name + ".up_proj.weight", {4, hidden}, 16);
    file.add(moe + name + ".down_proj.weight", {hidden, 4}, 17);
  }
  file.add("mtp.layers.0.norm.weight", {hidden});
  return file;
}

TEST(NemotronHWeights, HaveOneBlockInALayerAndNoGates) {
  const ModelConfig config = parse_config(
      R"({"model_type": "nemotron_h", "vocab_size": 3, "hidden_size": 4, "intermediate_size": 6,
          "hybrid_override_pattern": "M*-E", "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 2, "max_position_embeddings": 64, "mamba_num_heads": 4, "mamba_head_dim": 2,
          "ssm_state_size": 3, "n_groups": 2, "conv_kernel": 3, "n_routed_experts": 2,
          "num_experts_per_tok": 1, "moe_intermediate_size": 4,
          "moe_shared_expert_intermediate_size": 4})",
      "config.json");
  const Weights whole = load(config, nemotron_file());
  const std::vector<LayerWeights>& layers = whole.layers;
  EXPECT_TRUE(layers[0].recurrent && layers[1].has_attention && layers[2].has_ffn);
  EXPECT_FALSE(layers[0].has_attention || layers[0].has_ffn || layers[2].recurrent ||
               layers[2].has_attention || layers[3].has_ffn);
  EXPECT_TRUE(layers[0].attention_norm && !layers[0].ffn_norm);
  EXPECT_TRUE(!layers[3].attention_norm && layers[3].ffn_norm);
  const CheckpointFile file = nemotron_file();
  EXPECT_EQ(values_of(layers[0].recurrent->z),
            rows_of(file.tensors.at("backbone.layers.0.mixer.in_proj.weight"), {0}, values));
  EXPECT_EQ(first(layers[2].ffn.up.parts.front().weight), 12);
  EXPECT_EQ(first(layers[3].mixture.experts[1].down.parts.front().weight), 17);
  EXPECT_EQ(first(layers[3].mixture.choice_bias), 15);
  EXPECT_FALSE(layers[2].ffn.has_gate || layers[3].mixture.experts[0].has_gate ||
               layers[3].mixture.shared->has_gate);
  int64_t elements = -hidden;  // of drafts
  for (const auto& [name, tensor] : file.tensors)
    elements += static_cast<int64_t>(tensor.values.size());
  EXPECT_EQ(config.parameters(), elements);
  EXPECT_EQ(whole.resident_bytes(), 4 * elements);
  const Weights half = load(config, file, {}, {2, 1});
  device::PhantomDevice device({"phantom", 0, 1, "", ""}, int64_t{1} << 30);
  const PhantomWeights phantom(config, DType::fp32, {2, 1}, device);
  for (size_t layer = 0; layer < 4; ++layer) {
    std::vector<int64_t> real, of_phantom;
    half.layers[layer].for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      real.insert(real.end(), {static_cast<int64_t>(kind), matrix.out(), matrix.in()});
    });
    phantom.layers[layer].for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      of_phantom.insert(of_phantom.end(), {static_cast<int64_t>(kind), matrix.out(), matrix.in()});
    });
    EXPECT_EQ(real, of_phantom) << layer;
  }
}

TEST(GatedQueries, AreSplitByHeadAndCut) {
  const ModelConfig config = hybrid_model("qwen3_5_text");
  const CheckpointFile file = hybrid_file("qwen3_5_text");
  const CheckpointFile::Tensor& q = file.tensors.at("model.layers.1.self_attn.q_proj.weight");
  for (const int count : {1, 2})
    for (int index = 0; index < count; ++index) {
      const Weights loaded = load(config, file, {}, {count, index});
      const AttentionWeights& attention = loaded.layers[1].attention;
      std::vector<int64_t> queries, gates;
      for (int64_t head = 4 / count * index; head < 4 / count * (index + 1); ++head)
        queries.push_back(4 * head), gates.push_back(4 * head + 2);
      EXPECT_EQ(values_of(attention.q), rows_of(q, queries, 2));
      EXPECT_EQ(values_of(*attention.gate), rows_of(q, gates, 2));
      EXPECT_EQ(attention.q.parts.size(), 1u);
    }
  const Weights whole = load(config, file);
  EXPECT_EQ(first(whole.layers[1].attention.q_norm), 14 + 1);
  EXPECT_EQ(first(whole.layers[0].attention_norm), 4 + 1);
}

/// As published with parts that see and that draft.
TEST(RecurrentWeights, LeaveOutDraftsAndImagesByName) {
  const ModelConfig config = hybrid_model("qwen3_5_text");
  CheckpointFile file, plain = hybrid_file("qwen3_5_text");
  for (auto& [name, tensor] : plain.tensors)
    file.tensors[name.starts_with("model.") ? "model.language_model." + name.substr(6) : name] =
        tensor;
  file.add("model.visual.blocks.0.attn.qkv.weight", {2, 2});
  file.add("mtp.fc.weight", {4, 8});
  file.add("mtp.layers.0.self_attn.q_proj.weight", {4, 8});
  const Weights loaded = load(config, file);
  EXPECT_EQ(values_of(loaded.layers[0].recurrent->q),
            values_of(load(config, plain).layers[0].recurrent->q));
  file.add("model.language_model.layers.0.linear_attn.in_proj_y.weight", {4, 8});
  EXPECT_THROW(load(config, file), InputError);
}

TEST(RecurrentWeights, OfBrokenCheckpointsAreRefused) {
  const auto error_of = [](const CheckpointFile& file) -> std::string {
    try {
      load(hybrid_model("qwen3_next"), file);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string mixer = "model.layers.0.linear_attn.";
  for (const char* name : {"in_proj_qkvz.weight", "in_proj_ba.weight", "conv1d.weight", "A_log",
                           "dt_bias", "norm.weight", "out_proj.weight"}) {
    CheckpointFile missing = hybrid_file("qwen3_next");
    missing.tensors.erase(mixer + name);
    EXPECT_THAT(error_of(missing), HasSubstr("tensor '" + mixer + name + "' is missing"));
    CheckpointFile other = hybrid_file("qwen3_next");
    other.add(mixer + name, {5, 3});
    EXPECT_THAT(error_of(other), HasSubstr("'" + mixer + name + "' has shape [5, 3]"));
  }
  CheckpointFile bias = hybrid_file("qwen3_next");
  bias.add(mixer + "conv1d.bias", {2 * keys + values});
  EXPECT_THAT(error_of(bias), HasSubstr("has no place in the model"));
}

}  // namespace
}  // namespace pecia::model
