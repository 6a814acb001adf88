// SPDX-License-Identifier: Apache-2.0
/// Layers whose weights are cut over ranks: gathered, they are whole; products of their parts add
/// up.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/model/layers/layer_gather.hpp"
#include "lib/model/weights/tensor_parallel.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/model/hybrid_checkpoints.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::model {
namespace {

using kernels::Accumulate;
using parallel::RowRange;
using parallel::Sharding;

/// In row order, blocks of rows or of columns joined.
std::vector<float> joined(const LinearWeight& matrix) {
  if (matrix.blocks == LinearWeight::Blocks::rows) return values_of(matrix);
  std::vector<float> values;
  for (int64_t row = 0; row < matrix.parts.front().weight.rows(); ++row)
    for (const LinearWeight::Part& part : matrix.parts)
      for (int64_t column = 0; column < part.weight.size(1); ++column)
        values.push_back(load_as_float(part.weight.row(row), part.weight.dtype(), column));
  return values;
}

TEST(LayerGather, GivesWholeLayers) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  ModelConfig config = small_model(Family::llama);
  config.ffn = 8;  // four ranks have equal parts
  config.attention_bias = config.attention_output_bias = true;
  CheckpointFile file = llama_file();
  add_qkv_biases(file);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    file.add(layer + "self_attn.o_proj.bias", {4}, 23);
    file.add(layer + "mlp.gate_proj.weight", {8, 4}, 10);
    file.add(layer + "mlp.up_proj.weight", {8, 4}, 11);
    file.add(layer + "mlp.down_proj.weight", {4, 8}, 12);
  }
  const Weights whole = load(config, file);
  const Weights part = load(config, file, {}, {world->size(), world->rank()});
  const auto groups = attention::make_replica_groups(*world, 1, world->size());
  test::CpuCompute compute;
  LayerGather gather(config, part, groups, compute);
  for (int pass = 0; pass < 2; ++pass) {
    gather.begin_pass();
    for (int64_t index = 0; index < config.layers; ++index) {
      const LayerWeights gathered = gather.layer(index);
      const LayerWeights& wanted = whole.layers[index];
      for (const MatrixKind kind : layer_kinds) {
        EXPECT_EQ(joined(gathered.matrix(kind)), values_of(wanted.matrix(kind)))
            << role_of(kind).name << " of layer " << index;
        EXPECT_EQ(biases_of(gathered.matrix(kind)), biases_of(wanted.matrix(kind)))
            << role_of(kind).name << " of layer " << index;
      }
      EXPECT_EQ(first(gathered.ffn_norm), first(wanted.ffn_norm));
    }
  }
}

/// Four ranks share two key heads.
TEST(LayerGather, GivesWholeRecurrences) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  for (const std::string type : {"qwen3_next", "granitemoehybrid"}) {
    ModelConfig config = hybrid_model(type);
    config.ffn = 8;  // four ranks have equal parts
    CheckpointFile file = hybrid_file(type);
    for (auto& [name, tensor] : file.tensors) {
      const bool is_pack = name.find("input_linear") != std::string::npos;
      if (name.ends_with("mlp.gate_proj.weight") || name.ends_with("mlp.up_proj.weight") || is_pack)
        file.add(name, {is_pack ? 16 : 8, 4}, 6);
      if (name.ends_with("down_proj.weight") || name.ends_with("output_linear.weight"))
        file.add(name, {4, 8}, 7);
    }
    Weights whole = load(config, file);
    const Weights part = load(config, file, {}, {world->size(), world->rank()});
    const auto groups = attention::make_replica_groups(*world, 1, world->size());
    test::CpuCompute compute;
    LayerGather gather(config, part, groups, compute);
    gather.begin_pass();
    for (int64_t index = 0; index < config.layers; ++index) {
      LayerWeights gathered = gather.layer(index);
      std::vector<std::vector<float>> wanted;
      whole.layers[index].for_each_matrix(
          [&](MatrixKind, LinearWeight& matrix) { wanted.push_back(values_of(matrix)); });
      size_t next = 0;
      gathered.for_each_matrix([&](MatrixKind kind, LinearWeight& matrix) {
        EXPECT_EQ(joined(matrix), wanted[next++]) << role_of(kind).name << " of " << type;
      });
      if (!gathered.recurrent) continue;
      const auto vectors = gathered.recurrent->vectors();
      const auto of_whole = whole.layers[index].recurrent->vectors();
      for (size_t i = 0; i < vectors.size(); ++i) {
        ASSERT_EQ(static_cast<bool>(*vectors[i]), static_cast<bool>(*of_whole[i]));
        if (!*vectors[i]) continue;
        EXPECT_EQ((std::vector<float>{vectors[i]->as<float>(),
                                      vectors[i]->as<float>() + vectors[i]->elements()}),
                  (std::vector<float>{of_whole[i]->as<float>(),
                                      of_whole[i]->as<float>() + of_whole[i]->elements()}))
            << i << " of " << type;
      }
    }
  }
}

/// Every grid of the ranks, and the shardings that it has.
class CutProducts : public testing::Test {
 protected:
  template <typename F>
  void for_each_sharding(F&& check) {
    for (int sp = 1; sp <= world_->size(); ++sp) {
      if (world_->size() % sp != 0) continue;
      const auto groups = attention::make_replica_groups(*world_, sp, world_->size() / sp);
      TensorParallel tensor(groups, compute_, kernels::RowInvariant::no);
      for (const Sharding sharding :
           {Sharding::base, Sharding::shift, Sharding::sp_tp, Sharding::gathered})
        for (const int64_t num_rows : {0, 1, 5, 1100}) {
          SCOPED_TRACE(fmt::format("sp {} of {}, sharding {}, {} rows", sp, world_->size(),
                                   static_cast<int>(sharding), num_rows));
          tensor.begin_pass(sharding, num_rows);
          check(tensor);
        }
    }
  }

  static constexpr int64_t width = 3;
  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  test::CpuCompute compute_;
};

float before(int64_t row) {
  return 0.5f * static_cast<float>(row);
}
float product(int64_t row, int part) {
  return static_cast<float>((row + 1) * (part + 1));
}

TEST_F(CutProducts, AddUp) {
  device::Buffer memory = attention::Compute(compute_).buffer();
  for_each_sharding([&](TensorParallel& tensor) {
    const parallel::ShardedRows& rows = tensor.rows();
    const TensorView hidden = memory.tensor(DType::fp32, {rows.num_own(), width});
    const auto each_own = [&](auto&& f) {
      for (int block = 0; block < tensor.num_blocks(); ++block)
        for (int64_t row = rows.own[block].begin; row < rows.own[block].end; ++row)
          for (int64_t i = 0; i < width; ++i)
            f(row,
              tensor.own_of(hidden, block).as<float>()[(row - rows.own[block].begin) * width + i]);
    };
    each_own([](int64_t row, float& value) { value = before(row); });
    for (int block = 0; block < tensor.num_blocks(); ++block)
      tensor.add_product(block, tensor.own_of(hidden, block),
                         [&](const TensorView& to, Accumulate accumulate) {
                           auto* next = to.as<float>();
                           const bool adds = accumulate == Accumulate::yes;
                           for (int64_t row = 0; row < to.rows(); ++row)
                             for (int64_t i = 0; i < width; ++i, ++next)
                               *next = (adds ? *next : 0) +
                                       product(rows.blocks[block].begin + row, tensor.cut().index);
                         });
    for (int block = 0; block < tensor.num_blocks(); ++block) tensor.wait_sum(block);
    each_own([&](int64_t row, float value) {
      float wanted = before(row);
      for (int part = 0; part < tensor.cut().count; ++part) wanted += product(row, part);
      ASSERT_EQ(value, wanted) << "row " << row;
    });
  });
}

TEST_F(CutProducts, HaveTheRowsOfAllWhoMultiply) {
  device::Buffer memory = attention::Compute(compute_).buffer();
  for_each_sharding([&](TensorParallel& tensor) {
    const parallel::ShardedRows& rows = tensor.rows();
    const TensorView all = memory.tensor(DType::fp32, {rows.linear.size(), width});
    for (int64_t i = 0; i < all.elements(); ++i) all.as<float>()[i] = -1;
    const auto at = [&](int64_t row) {
      return all.as<float>() + (row - rows.linear.begin) * width;
    };
    for (int block = 0; block < tensor.num_blocks(); ++block) {
      for (int64_t row = rows.own[block].begin; row < rows.own[block].end; ++row)
        std::fill_n(at(row), width, before(row));
      tensor.start_gather(block, all);
    }
    for (int block = 0; block < tensor.num_blocks(); ++block) tensor.wait_gather(block);
    for (int64_t row = rows.linear.begin; row < rows.linear.end; ++row)
      for (int64_t i = 0; i < width; ++i) ASSERT_EQ(at(row)[i], before(row)) << "row " << row;
  });
}

}  // namespace
}  // namespace pecia::model
