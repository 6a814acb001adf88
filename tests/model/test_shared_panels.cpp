// SPDX-License-Identifier: Apache-2.0
/// Ranks of a host pack their weights together, and read what all of them packed.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>

#include "lib/base/core/random.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/model/weights/shared_panels.hpp"
#include "lib/model/weights/shift_panels.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"

namespace pecia::model {
namespace {

constexpr int64_t depth = 64;

class Packed : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::cpu_has_bf16_products())
      GTEST_SKIP() << kernels::why_no_products(kernels::MatmulKind::bf16);
    views_.part = {num_parts_, part_};
    LayerWeights& layer = views_.layers.emplace_back();
    layer.attention.q = matrix(70);
    layer.attention.k = matrix(32);
    layer.ffn.down = matrix(129);
    views_.head = layer.attention.k;  // tied
    LayerWeights& mixture = views_.layers.emplace_back();
    mixture.mixture.router = matrix(5);
    mixture.mixture.experts = {{matrix(40), matrix(40), matrix(64)}};
  }

  /// Numbers that differ from part to part.
  LinearWeight matrix(int64_t rows, int64_t columns = depth) {
    device::Buffer& buffer = memory_.emplace_back();
    const TensorView weight = buffer.tensor(DType::bf16, {rows, columns});
    const uint64_t seed = memory_.size() + 100 * part_;
    for (int64_t i = 0; i < weight.elements(); ++i)
      store_from_float(weight.data(), DType::bf16, i,
                       static_cast<float>(uniform(seed, static_cast<uint64_t>(i))) - 0.5f);
    return {.parts = {{weight, {}}}};
  }

  static std::vector<float> product(kernels::Backend& backend, const LinearWeight& weight) {
    device::Buffer x_buffer, y_buffer;
    const TensorView& matrix = weight.parts.front().weight;
    const TensorView x = x_buffer.tensor(DType::fp32, {3, matrix.size(1)});
    const TensorView y = y_buffer.tensor(DType::fp32, {3, matrix.rows()});
    for (int64_t i = 0; i < x.elements(); ++i)
      x.as<float>()[i] = static_cast<float>(uniform(7, static_cast<uint64_t>(i)));
    device::Stream stream(2);
    backend.linear({x, matrix, {}, y}, stream);
    return {y.as<float>(), y.as<float>() + y.elements()};
  }

  void forget_matrices() {
    for (const device::Buffer& buffer : memory_) std::memset(buffer.data(), 0, buffer.bytes());
  }

  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  int num_parts_ = world_->size() == 4 ? 2 : 1;  // of 4 ranks, two have each part
  int part_ = world_->rank() % num_parts_;
  std::vector<device::Buffer> memory_;
  WeightViews views_;
};

TEST_F(Packed, IsWhatTheRanksOfAPartPackedTogether) {
  const auto backend = kernels::make_cpu_backend(kernels::MatmulKind::bf16);
  device::Stream stream(2);
  const std::vector<const LinearWeight*> dense = {
      &views_.layers[0].attention.q, &views_.layers[0].attention.k, &views_.layers[0].ffn.down,
      &views_.head, &views_.layers[1].mixture.router};
  const LinearWeight& expert = views_.layers[1].mixture.experts[0].gate;
  std::vector<std::vector<float>> wanted;
  for (const LinearWeight* matrix : dense) wanted.push_back(product(*backend, *matrix));

  int layers = 0;
  {
    const SharedPanels panels(*world_, views_, *backend, stream, [&] { ++layers; });
    // Matrices of 70, 32, 129 and 5 rows, in panels of 32. The tied head counts once.
    EXPECT_EQ(panels.bytes(), (96 + 32 + 160 + 32) * depth * 2);
    EXPECT_EQ(panels.bytes(), panel_bytes(views_, *backend));
    EXPECT_EQ(world_->all_reduce_sum(panels.is_first() ? 1 : 0), num_parts_);
    EXPECT_EQ(layers, 3) << "two layers and the head";
    forget_matrices();
    for (size_t i = 0; i < dense.size(); ++i)
      EXPECT_EQ(product(*backend, *dense[i]), wanted[i]) << "matrix " << i;
    EXPECT_EQ(product(*backend, expert), std::vector<float>(3 * 40, 0)) << "experts stay in place";
    world_->barrier();  // nobody leaves while others read
  }
  EXPECT_EQ(product(*backend, *dense[0]), std::vector<float>(3 * 70, 0))
      << "the matrices are read again";
}

TEST_F(Packed, IsNothingForBackendsWithoutPanels) {
  const auto fp32 = kernels::make_cpu_backend(kernels::MatmulKind::fp32);
  EXPECT_EQ(panel_bytes(views_, *fp32), 0);
  device::Stream stream(1);
  const SharedPanels panels(*world_, views_, *fp32, stream);
  EXPECT_EQ(panels.bytes(), 0);
}

/// Columns of o and down in the part of the shift configuration are read where they were packed; rows
/// of other matrices are not packed again.
TEST_F(Packed, OfTheShiftConfigurationAreItsColumns) {
  ModelConfig config;
  config.hidden = 64, config.num_heads = 8, config.num_kv_heads = 4, config.head_dim = 32;
  config.ffn = 512, config.layers = 2;
  WeightViews whole;
  for (int number = 0; number < 2; ++number) {
    LayerWeights& layer = whole.layers.emplace_back();
    layer.attention.q = matrix(256, 64);
    layer.attention.k = matrix(128, 64), layer.attention.v = matrix(128, 64);
    layer.attention.o = matrix(64, 256);
    layer.ffn.gate = matrix(512, 64), layer.ffn.up = matrix(512, 64);
    layer.ffn.down = matrix(64, 512);
  }
  const auto backend = kernels::make_cpu_backend(kernels::MatmulKind::bf16);
  device::Stream stream(2);
  EXPECT_TRUE(ShiftPanels::matrices_of(whole, config, whole.part, *backend).empty());
  for (const int index : {0, 3}) {
    const parallel::WeightCut cut{4, index};
    const auto matrices = ShiftPanels::matrices_of(whole, config, cut, *backend);
    ASSERT_EQ(matrices.size(), 4u) << "o and down of two layers";
    const LayerWeights shifted = cut_layer(whole.layers[1], config, 1, whole.part, cut);
    const auto wanted = product(*backend, shifted.ffn.down);
    const ShiftPanels panels(matrices, *backend, stream);
    EXPECT_EQ(panels.bytes(), 2 * 64 * (64 + 128) * 2);
    EXPECT_EQ(panels.bytes(), ShiftPanels::bytes_of(matrices, *backend));
    const TensorView down = whole.layers[1].ffn.down.parts.front().weight;
    std::vector<std::byte> kept(down.elements() * 2);
    std::memcpy(kept.data(), down.data(), kept.size());
    std::memset(down.data(), 0, kept.size());
    EXPECT_EQ(product(*backend, shifted.ffn.down), wanted);
    std::memcpy(down.data(), kept.data(), kept.size());
  }
}

}  // namespace
}  // namespace pecia::model
