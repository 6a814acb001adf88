// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/model/weights/device_weights.hpp"
#include "tests/model/small_checkpoints.hpp"

namespace pecia::model {
namespace {

/// On the host's own device, where copies can be looked at.
struct OnDevice : testing::Test {
  std::unique_ptr<device::Device> device = device::make_host_device(1);
  std::unique_ptr<device::Stream> stream = device->make_stream();
  std::unique_ptr<kernels::Backend> backend = kernels::make_reference_backend();
};

void expect_copy(const LinearWeight& copy, const LinearWeight& of) {
  EXPECT_EQ(values_of(copy), values_of(of));
  ASSERT_EQ(copy.parts.size(), of.parts.size());
  for (size_t i = 0; i < of.parts.size(); ++i) {
    EXPECT_NE(copy.parts[i].weight.data(), of.parts[i].weight.data());
    EXPECT_TRUE(copy.parts[i].weight.dense());
    EXPECT_EQ(static_cast<bool>(copy.parts[i].bias), static_cast<bool>(of.parts[i].bias));
  }
}

TEST_F(OnDevice, WeightsAreDenseCopiesOfTheirPart) {
  ModelConfig config = small_model(Family::llama);
  config.attention_bias = true;
  CheckpointFile file = llama_file();
  add_qkv_biases(file);
  const Weights host = load(config, file, {}, {2, 1});
  const DeviceWeights there(host, *device, *stream, *backend);
  EXPECT_EQ(there.part, host.part);
  ASSERT_EQ(there.layers.size(), host.layers.size());
  for (size_t i = 0; i < host.layers.size(); ++i) {
    const LayerWeights &copy = there.layers[i], &of = host.layers[i];
    for (const MatrixKind kind : layer_kinds) expect_copy(copy.matrix(kind), of.matrix(kind));
    EXPECT_EQ(biases_of(copy.attention.q), biases_of(of.attention.q));
    EXPECT_EQ(first(copy.attention_norm), first(of.attention_norm));
    EXPECT_FALSE(copy.attention.q_norm);
  }
  expect_copy(there.head, host.head);
  EXPECT_EQ(first(there.final_norm), first(host.final_norm));
  EXPECT_EQ(first(there.embedding), first(host.embedding));
  EXPECT_GE(there.bytes(), host.resident_bytes());
  EXPECT_EQ(there.bytes(), DeviceWeights::bytes_of(host));
}

/// What codes and scales stand for, in row order; rows of `columns` numbers, or as many as there
/// are elements.
std::vector<float> widened(const LinearWeight& weight, int64_t columns = 0) {
  std::vector<float> values;
  for (const LinearWeight::Part& part : weight.parts) {
    const DType type = part.weight.dtype();
    const int64_t numbers = columns > 0 ? columns : part.weight.size(1);
    for (int64_t row = 0; row < part.weight.rows(); ++row)
      for (int64_t i = 0; i < numbers; ++i)
        values.push_back(load_number(part.weight.row(row), type,
                                     part.scales.as<float>() + row * row_scales(type, numbers), i));
  }
  return values;
}

/// So that they may be one product.
TEST_F(OnDevice, CodesOfOneProductLieNextToEachOtherAndSoDoTheirScales) {
  ModelConfig config = small_model(Family::llama);
  const Weights loaded = load(config, llama_file(), {}, {});
  WeightViews host = loaded;
  constexpr int64_t rows = 64, columns = 128;
  std::vector<int8_t> codes(3 * rows * columns);
  std::vector<float> scales(3 * rows);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i % 251 - 125);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i);
  AttentionWeights& attention = host.layers.front().attention;
  int64_t next = 2;  // in another order than on the device
  for (LinearWeight* matrix : {&attention.q, &attention.k, &attention.v}) {
    matrix->parts = {
        {TensorView(codes.data() + next * rows * columns, DType::int8, {rows, columns}),
         {},
         TensorView(scales.data() + next * rows, DType::fp32, {rows})}};
    next = (next + 2) % 3;
  }
  EXPECT_FALSE(joined({&attention.q, &attention.k, &attention.v}));
  const DeviceWeights there(host, *device, *stream, *backend);
  const AttentionWeights& copy = there.layers.front().attention;
  for (const auto& [found, wanted] :
       {std::pair(&copy.q, &attention.q), {&copy.k, &attention.k}, {&copy.v, &attention.v}}) {
    EXPECT_NE(found->parts.front().weight.data(), wanted->parts.front().weight.data());
    EXPECT_EQ(widened(*found), widened(*wanted));
  }
  const auto all = joined({&copy.q, &copy.k, &copy.v});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->out(), 3 * rows);
  EXPECT_EQ(all->parts.front().scales.rows(), 3 * rows);
}

TEST_F(OnDevice, TiedWeightsAreThereOnce) {
  ModelConfig config = small_model(Family::llama);
  config.tied_embeddings = true;
  CheckpointFile file = llama_file();
  file.tensors.erase("lm_head.weight");
  const DeviceWeights there(load(config, file, {}, {}), *device, *stream, *backend);
  EXPECT_EQ(there.embedding.data(), there.head.parts.front().weight.data());
}

TEST(TypeOfMatrix, OfFeedForwardAloneIsFp8) {
  using enum MatrixKind;
  for (const MatrixKind kind :
       {gate, up, down, expert_gate, expert_up, expert_down, shared_gate, shared_up, shared_down})
    EXPECT_EQ(type_of_matrix(Quantize::fp8_ffn, kind), DType::fp8) << role_of(kind).name;
  for (const MatrixKind kind : {q, k, v, o, head, router, recurrent_q, second_up})
    EXPECT_EQ(type_of_matrix(Quantize::fp8_ffn, kind), std::nullopt) << role_of(kind).name;
}

TEST_F(OnDevice, FeedForwardAloneIsRounded) {
  const ModelConfig config = small_model(Family::llama);
  const Weights host = load(config, llama_file(), DType::bf16, {1, 0});
  const DeviceWeights there(host, *device, *stream, *backend, Quantize::fp8_ffn);
  EXPECT_EQ(there.bytes(), DeviceWeights::bytes_of(host, Quantize::fp8_ffn));
  for (const LayerWeights& layer : there.layers) {
    EXPECT_EQ(layer.ffn.down.parts.front().weight.dtype(), DType::fp8);
    EXPECT_EQ(layer.attention.o.parts.front().weight.dtype(), DType::bf16);
  }
}

TEST_F(OnDevice, MatricesOfLayersAreRoundedOnTheWay) {
  for (const Family family : {Family::llama, Family::glm, Family::internlm2}) {
    ModelConfig config = small_model(family);
    config.attention_bias = family == Family::glm;
    const CheckpointFile file = family == Family::llama ? llama_file()
                                : family == Family::glm ? glm_file()
                                                        : internlm2_file();
    const Weights host = load(config, file, DType::bf16, {2, 1});
    const DeviceWeights there(host, *device, *stream, *backend, Quantize::fp8);
    EXPECT_EQ(there.bytes(), DeviceWeights::bytes_of(host, Quantize::fp8));
    EXPECT_EQ(there.quantized(), Quantize::fp8);
    std::array<SquareSums, num_matrix_kinds> sums{};
    for (size_t layer = 0; layer < host.layers.size(); ++layer)
      for (const MatrixKind kind : layer_kinds) {
        SCOPED_TRACE(role_of(kind).name);
        const LinearWeight& copy = there.layers[layer].matrix(kind);
        const LinearWeight& of = host.layers[layer].matrix(kind);
        const std::vector<float> found = widened(copy), wanted = values_of(of);
        ASSERT_EQ(found.size(), wanted.size());
        for (size_t e = 0; e < wanted.size(); ++e) {
          EXPECT_NEAR(found[e], wanted[e], 0x1p-4 * wanted[e]);
          SquareSums& sum = sums[static_cast<size_t>(kind)];
          sum.difference += std::pow(double{found[e]} - wanted[e], 2);
          sum.original += std::pow(wanted[e], 2);
        }
        EXPECT_EQ(copy.bytes(), static_cast<int64_t>(wanted.size()) + of.out() * 4 +
                                    static_cast<int64_t>(biases_of(of).size()) * 4);
        EXPECT_EQ(biases_of(copy), biases_of(of));
      }
    for (const MatrixKind kind : layer_kinds) {
      const auto i = static_cast<size_t>(kind);
      EXPECT_GT(sums[i].difference, 0);
      EXPECT_NEAR(there.rounding()[i].difference, sums[i].difference, 1e-5 * sums[i].difference);
      EXPECT_NEAR(there.rounding()[i].original, sums[i].original, 1e-5 * sums[i].original);
    }
    expect_copy(there.head, host.head);
    EXPECT_EQ(there.embedding.dtype(), DType::bf16);
    EXPECT_EQ(first(there.layers[0].ffn_norm), first(host.layers[0].ffn_norm));
  }
}

TEST_F(OnDevice, IntegersAreOfTheKindsThatBearThem) {
  const ModelConfig config = small_model(Family::llama);
  const Weights host = load(config, llama_file(), DType::bf16, {});
  const auto cpu = kernels::make_cpu_backend();
  for (const Quantize quantize : {Quantize::int8, Quantize::int4}) {
    const DeviceWeights there(host, *device, *stream, *cpu, quantize);
    EXPECT_EQ(there.bytes(), DeviceWeights::bytes_of(host, quantize));
    std::array<double, num_matrix_kinds> differences{};
    const auto check = [&](const LinearWeight& copy, const LinearWeight& of, MatrixKind kind) {
      const std::string_view name = role_of(kind).name;
      SCOPED_TRACE(name);
      const bool in_int4 = quantize == Quantize::int4 &&
                           (name == "q" || name == "o" || name == "gate" || name == "up");
      EXPECT_EQ(copy.parts.front().weight.dtype(), in_int4 ? DType::int4 : DType::int8);
      const int64_t columns = of.parts.front().weight.size(1);
      const std::vector<float> found = widened(copy, columns), wanted = values_of(of);
      ASSERT_EQ(found.size(), wanted.size());
      for (size_t begin = 0; begin < wanted.size(); begin += columns) {
        const auto [least, greatest] =
            std::minmax_element(wanted.begin() + begin, wanted.begin() + begin + columns);
        const float most = std::max(-*least, *greatest);
        const float step = in_int4 ? (*greatest - *least) / 15 : most / 127;
        for (size_t e = begin; e < begin + columns; ++e) {
          EXPECT_NEAR(found[e], wanted[e], 0.5f * step * (1 + 0x1p-10f));
          differences[static_cast<size_t>(kind)] += std::pow(double{found[e]} - wanted[e], 2);
        }
      }
    };
    for (size_t layer = 0; layer < host.layers.size(); ++layer)
      for (const MatrixKind kind : layer_kinds)
        check(there.layers[layer].matrix(kind), host.layers[layer].matrix(kind), kind);
    check(there.head, host.head, MatrixKind::head);
    for (size_t kind = 0; kind < num_matrix_kinds; ++kind)
      EXPECT_NEAR(there.rounding()[kind].difference, differences[kind],
                  1e-4 * differences[kind] + 1e-12);
    EXPECT_EQ(there.embedding.dtype(), DType::bf16);
  }
}

TEST_F(OnDevice, ATiedHeadIsRoundedBesideTheEmbedding) {
  ModelConfig config = small_model(Family::llama);
  config.tied_embeddings = true;
  CheckpointFile file = llama_file();
  file.tensors.erase("lm_head.weight");
  const Weights host = load(config, file, {}, {});
  const DeviceWeights there(host, *device, *stream, *backend, Quantize::int8);
  EXPECT_EQ(there.head.parts.front().weight.dtype(), DType::int8);
  EXPECT_EQ(first(there.embedding), first(host.embedding));
}

TEST_F(OnDevice, CutsOfRoundedMatricesKeepTheScalesOfTheirRows) {
  const ModelConfig config = small_model(Family::llama);
  const DeviceWeights whole(load(config, llama_file(), {}, {}), *device, *stream, *backend,
                            Quantize::fp8);
  const LayerWeights &layer = whole.layers[1], half = cut_layer(layer, config, 1, {}, {2, 1});
  const auto rows_from = [](const LinearWeight& weight, int64_t row) {
    std::vector<float> values = widened(weight);
    values.erase(values.begin(), values.begin() + row * weight.in());
    return values;
  };
  EXPECT_EQ(widened(half.attention.q), rows_from(layer.attention.q, 4));
  EXPECT_EQ(widened(half.attention.v), rows_from(layer.attention.v, 2));
  EXPECT_EQ(widened(half.ffn.up), rows_from(layer.ffn.up, 3));
  std::vector<float> columns;
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t i = 3; i < 6; ++i) columns.push_back(widened(layer.ffn.down)[row * 6 + i]);
  EXPECT_EQ(widened(half.ffn.down), columns);
}

}  // namespace
}  // namespace pecia::model
