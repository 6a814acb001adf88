// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/work/cluster_files/op_time.hpp"

namespace pecia::cluster_files {
namespace {

/// 100 and 400 GFLOP/s, 10 GB/s, half of each; 1 µs for an op.
Cluster cluster() {
  Cluster made;
  made.rank = {"rank", false, {{DType::fp32, 1e11}, {DType::bf16, 4e11}}, 10, 1};
  made.efficiency = {{0.5}, {0.25}, {0.5}, {1}, {1}};
  made.overhead.op_us = 1;
  return made;
}

kernels::OpWork product(double flops, int64_t bytes, DType operands) {
  return {"linear", DType::bf16, 64, flops, bytes, 0, operands, 128, 256};
}

TEST(OpTime, IsThatOfComputingOrOfReading) {
  EXPECT_DOUBLE_EQ(op_seconds(product(1e9, 1000, DType::fp32), cluster()), 1e9 / 5e10 + 1e-6);
  EXPECT_DOUBLE_EQ(op_seconds(product(1e9, 1000, DType::bf16), cluster()), 1e9 / 2e11 + 1e-6);
  EXPECT_DOUBLE_EQ(op_seconds(product(1e3, 1'000'000, DType::fp32), cluster()), 1e6 / 5e9 + 1e-6);
  EXPECT_DOUBLE_EQ(copy_seconds(1'000'000, cluster()), 2e6 / 5e9 + 1e-6);
}

TEST(OpTime, CountsOperandsWithoutAPeakAsTheNextWiderOnes) {
  const auto seconds = [](DType operands) {
    return op_seconds(product(1e9, 0, operands), cluster()) - 1e-6;
  };
  EXPECT_DOUBLE_EQ(seconds(DType::fp8), seconds(DType::bf16));
  EXPECT_DOUBLE_EQ(seconds(DType::fp16), seconds(DType::bf16));
  Cluster narrow = cluster();
  narrow.rank.flops.erase(DType::fp32);
  EXPECT_DOUBLE_EQ(op_seconds(product(1e9, 0, DType::fp32), narrow) - 1e-6, seconds(DType::bf16));
}

TEST(OpTime, DependsOnTheSizeWhereTheShareDoes) {
  Cluster made = cluster();
  made.efficiency.gemm = {1, {{Axis::rows, {{64, 0.1}, {128, 0.5}}}, {Axis::depth, {{128, 0.5}}}}};
  made.efficiency.attention = {1, {{Axis::width, {{256, 0.2}, {512, 0.4}}}}};
  EXPECT_DOUBLE_EQ(op_seconds(product(1e9, 0, DType::fp32), made), 1e9 / (1e11 * 0.05) + 1e-6);
  kernels::OpWork attention = product(1e9, 0, DType::fp32);
  attention.name = "attention";
  EXPECT_DOUBLE_EQ(op_seconds(attention, made), 1e9 / (1e11 * 0.2) + 1e-6);
  kernels::OpWork experts = product(1e9, 0, DType::fp32);
  experts.name = "experts";
  EXPECT_DOUBLE_EQ(op_seconds(experts, made), op_seconds(product(1e9, 0, DType::fp32), made));
}

TEST(OpTime, OfAttentionGoesByRowsAndKeysTogether) {
  Cluster made = cluster();
  const Curve few{Axis::rows, {{1, 0.1}, {100, 0.3}}}, many{Axis::rows, {{10, 0.5}}};
  made.efficiency.attention = {0.5, {}, {{16, few}, {1024, many}}};
  const auto share = [&](double rows, double depth) {
    return made.efficiency.attention.of({.rows = rows, .depth = depth});
  };
  EXPECT_DOUBLE_EQ(share(10, 4), 0.5 * 0.2);
  EXPECT_DOUBLE_EQ(share(1, 16), 0.5 * 0.1);
  EXPECT_DOUBLE_EQ(share(1, 4096), 0.5 * 0.5);
  EXPECT_NEAR(share(10, 128), 0.5 * 0.35, 1e-12);  // half way from 16 keys to 1024
}

TEST(OpTime, OfAttentionGoesByTheRowsThatReadTheSameKeys) {
  Cluster made = cluster();
  made.efficiency.attention = {1, {{Axis::rows, {{1, 0.1}, {64, 0.7}}}}};
  kernels::OpWork steps = product(1e9, 0, DType::fp32);
  steps.name = "attention";
  EXPECT_DOUBLE_EQ(op_seconds(steps, made), 1e9 / (1e11 * 0.7) + 1e-6);
  steps.item_rows = 1;
  EXPECT_DOUBLE_EQ(op_seconds(steps, made), 1e9 / (1e11 * 0.1) + 1e-6);
}

TEST(OpTime, OfARecurrenceIsNeverShorterThanItsRowsOneAfterTheOther) {
  kernels::OpWork op{"recurrence", DType::fp32, 2000, 1e9, 0, 0, DType::fp32, 128, 4096};
  op.serial_rows = 1000;
  Cluster made = cluster();
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e9 / (1e11 * 0.25) + 1e-6) << "as attention";
  made.efficiency.recurrence = Efficiency{0.5};
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e9 / (1e11 * 0.5) + 1e-6);
  made.overhead.recurrent_row_us = 30;
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1000 * 30e-6 + 1e-6);
  op.flops /= 100;  // fewer heads
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1000 * 30e-6 + 1e-6);
  op.serial_rows = 1;  // 1000 sequences
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e7 / 5e10 + 1e-6);
}

TEST(OpTime, OfARecurrenceInChunksIsNeverShorterThanItsChunksOneAfterTheOther) {
  kernels::OpWork op{"recurrence", DType::fp32, 2000, 1e9, 0, 0, DType::bf16, 128, 4096};
  op.serial_rows = 1000, op.chunk_rows = 64;
  Cluster made = cluster();
  made.rank.flops[DType::bf16] = 1e12;
  made.overhead.recurrent_row_us = 1e6;  // of rows one after the other
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e9 / (1e12 * 0.25) + 1e-6) << "as attention";
  made.efficiency.recurrence_chunks = Efficiency{0.1};
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e9 / (1e12 * 0.1) + 1e-6);
  made.overhead.recurrent_chunk_us = 1000;
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 16 * 1e-3 + 1e-6);
  op.operands = DType::fp32;  // three products
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 3 * 16 * 1e-3 + 1e-6);
}

TEST(OpTime, OfAttentionReadsKeysAtTheirOwnRate) {
  Cluster made = cluster();
  made.efficiency.stream = {0.1};
  kernels::OpWork op = product(1e3, 1'000'000, DType::fp32);
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e6 / 5e9 + 1e-6);
  op.name = "attention";
  EXPECT_DOUBLE_EQ(op_seconds(op, made), 1e6 / 1e9 + 1e-6);
}

TEST(OpTime, IsShorterWhileOthersWait) {
  Cluster made = cluster();
  made.rank.alone = 3;
  made.rank.alone_flops = 1.5;
  const kernels::OpWork reads = product(1e3, 1'000'000, DType::fp32),
                        computes = product(1e9, 1000, DType::fp32);
  for (const auto& [others, gain, of_flops] :
       {std::tuple(1.0, 1.0, 1.0), {0.5, 2.0, 1.25}, {0.0, 3.0, 1.5}}) {
    EXPECT_DOUBLE_EQ(op_seconds(reads, made, others), 1e6 / 5e9 / gain + 1e-6);
    EXPECT_DOUBLE_EQ(op_seconds(computes, made, others), 1e9 / 5e10 / of_flops + 1e-6);
    EXPECT_DOUBLE_EQ(copy_seconds(1'000'000, made, others), 2e6 / 5e9 / gain + 1e-6);
  }
}

TEST(OpTime, OfFewRowsGoesByTheBytesOfTheWeights) {
  Cluster made = cluster();
  made.rank.alone = 3;
  // 64 rows take 1.6 times as long as one row, and 128 rows 2.56 times.
  made.efficiency.gemm = {
      0.5, {{Axis::rows, {{1, 0.01}, {64, 0.4}, {128, 0.5}}}, {Axis::depth, {{128, 0.5}}}}};
  made.efficiency.weights = {1, {{Axis::bytes, {{1000, 0.25}, {100'000, 1}}}}};
  const auto seconds = [&](int64_t rows, int64_t bytes, double others = 1,
                           DType weights = DType::bf16) {
    kernels::OpWork op = product(1e3 * rows, bytes, DType::bf16);
    op.dtype = weights, op.rows = rows;
    return op_seconds(op, made, others) - 1e-6;
  };
  constexpr double error = 1e-15;
  EXPECT_NEAR(seconds(1, 1000), 1000 / (4e11 * 0.5 * 0.01 * 0.25), error);
  EXPECT_NEAR(seconds(64, 1000), 1000 / (4e11 * 0.5 * 0.4 / 64 * 0.25), error);
  EXPECT_NEAR(seconds(64, 100'000), 100'000 / (4e11 * 0.5 * 0.4 / 64), error);
  EXPECT_NEAR(seconds(64, 1000, 0), seconds(64, 1000) / 3, error) << "it waits for memory";
  EXPECT_NEAR(seconds(128, 1000), 128e3 / (4e11 * 0.5 * 0.5 * 0.5), error) << "by rows and depth";
  EXPECT_NEAR(seconds(128, 1000, 0), seconds(128, 1000), error);
  // Half of the bytes are read in half of the time, but not multiplied as fast as one likes.
  EXPECT_NEAR(seconds(1, 500, 1, DType::int8), 500 / (4e11 * 0.5 * 0.01 * 0.25), error);
  EXPECT_NEAR(seconds(64, 1, 1, DType::int8), 64e3 / (4e11 * 0.5 * 0.5), error);
}

TEST(OpTime, IsLongerWhereWeightsOfFewRowsLieApart) {
  Cluster made = cluster();
  made.efficiency.pieces = {1, {{Axis::bytes, {{512, 0.5}, {2048, 1}}}}};
  kernels::OpWork reads = product(1e3, 1'000'000, DType::fp32),
                  computes = product(1e9, 1000, DType::fp32);
  const double dense_s = op_seconds(reads, made), computing_s = op_seconds(computes, made);
  reads.piece_bytes = computes.piece_bytes = 512;
  EXPECT_DOUBLE_EQ(op_seconds(reads, made), 2 * (dense_s - 1e-6) + 1e-6);
  EXPECT_DOUBLE_EQ(op_seconds(computes, made), computing_s);
  reads.piece_bytes = 4096;
  EXPECT_DOUBLE_EQ(op_seconds(reads, made), dense_s);
}

}  // namespace
}  // namespace pecia::cluster_files
