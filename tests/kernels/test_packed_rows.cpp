// SPDX-License-Identifier: Apache-2.0
/// Rows in the order in which tiles read them.

#include <set>

#include "kernels/cpu/products/packed_rows.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::SameX;
using kernels::cpu::PackedRows;
using kernels::cpu::row_blocks;
using kernels::cpu::RowBlocks;

TEST(PackedRows, AreCutIntoBlocksThatStayInTheSecondCache) {
  constexpr int64_t kibi = 1024;
  for (const int64_t depth : {1, 31, 64, 576, 2048, 4096, 5120}) {
    const RowBlocks blocks = row_blocks(100'000, depth);
    EXPECT_EQ(blocks.block_rows % RowBlocks::square_rows, 0);
    EXPECT_LE(blocks.block_rows * depth * 2, 1024 * kibi) << depth;
    EXPECT_LE(blocks.steps_of(0), 10) << "a piece of a panel takes 20 KiB";
    EXPECT_EQ(blocks.first_step(blocks.pieces), (depth + 31) / 32);
  }
  EXPECT_EQ(row_blocks(100'000, 576).block_rows, 512);
  EXPECT_EQ(row_blocks(100'000, 2048).block_rows, 256);
  EXPECT_EQ(row_blocks(100'000, 4096).block_rows, 128);
}

/// Every piece of every square has its own place, and all places are taken.
TEST(PackedRows, FillTheirMemory) {
  for (const auto& [rows, depth] : {std::pair<int64_t, int64_t>{1, 1},
                                    {32, 320},
                                    {33, 321},
                                    {530, 640},
                                    {1100, 33},
                                    {700, 0}}) {
    const RowBlocks blocks = row_blocks(rows, depth);
    std::set<int64_t> taken;
    int64_t counted = 0, found_rows = 0;
    for (int64_t block = 0; block < blocks.num_blocks(); ++block)
      for (int64_t square = 0; square < blocks.squares_of(block); ++square) {
        found_rows += blocks.rows_of_square(block, square);
        for (int64_t piece = 0; piece < blocks.pieces; ++piece)
          for (int64_t step = 0; step < blocks.steps_of(piece); ++step, ++counted)
            taken.insert(blocks.at(block, piece, square) + step * RowBlocks::step_elements);
      }
    EXPECT_EQ(found_rows, rows);
    EXPECT_EQ(std::ssize(taken), counted) << "two have one place";
    EXPECT_EQ(counted * RowBlocks::step_elements, blocks.elements());
    if (counted > 0) {
      EXPECT_EQ(*taken.rbegin(), blocks.elements() - RowBlocks::step_elements);
    }
  }
}

TEST(PackedRows, AreTilesOf16RowsAnd32Elements) {
  if (!kernels::cpu_has_bf16_products()) GTEST_SKIP() << "the packing needs products of bf16";
  const device::Stream stream(2);
  constexpr int64_t rows = 530, depth = 645;
  for (const DType type : {DType::bf16, DType::fp32}) {
    Tensor x = Tensor::random({rows, depth}, type, 1, 3);
    Tensor rounded({rows, depth}, DType::bf16, x.values());
    const RowBlocks blocks = row_blocks(rows, depth);
    PackedRows packed;
    const uint16_t* const found = packed.of(x.view(), blocks, SameX::no, stream);
    const auto wanted = rounded.values();
    int64_t wrong = 0;
    for (int64_t block = 0; block < blocks.num_blocks(); ++block)
      for (int64_t square = 0; square < blocks.squares_of(block); ++square)
        for (int64_t piece = 0; piece < blocks.pieces; ++piece)
          for (int64_t i = 0; i < blocks.steps_of(piece) * RowBlocks::step_elements; ++i) {
            const int64_t row = block * blocks.block_rows + square * 32 + i % 1024 / 32;
            const int64_t element = (blocks.first_step(piece) + i / 1024) * 32 + i % 32;
            const float number = row < rows && element < depth ? wanted[row * depth + element] : 0;
            wrong += bf16_to_float(found[blocks.at(block, piece, square) + i]) != number;
          }
    EXPECT_EQ(wrong, 0) << name_of(type);
  }
}

TEST(PackedRows, SumsAreWrittenPastTheCachesWhereRowsBeginOnLines) {
  if (!kernels::cpu_has_bf16_products()) GTEST_SKIP() << "needs products of bf16";
  std::vector<float> sums(32 * 32);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i);
  for (const bool streamed : {false, true})
    for (const int64_t rows : {1, 17, 32})
      for (const int64_t columns : {5, 32})
        for (const int64_t first : {0, 1})         // a column that begins a line, or none
          for (const int64_t stride : {48, 33}) {  // rows that all begin lines, or not
            alignas(64) float y[33 * 48 + 1];
            std::fill(std::begin(y), std::end(y), -1.0f);
            kernels::cpu::write_square(sums.data(), rows, columns, y + first, stride, streamed);
            kernels::cpu::end_of_streamed();
            int64_t wrong = 0;
            for (int64_t r = 0; r < 32; ++r)
              for (int64_t o = 0; o < stride; ++o) {
                const bool written = r < rows && o < columns;
                wrong +=
                    y[first + r * stride + o] != (written ? static_cast<float>(r * 32 + o) : -1.0f);
              }
            EXPECT_EQ(wrong, 0) << rows << " × " << columns << ", " << stride << " apart";
          }
}

}  // namespace
}  // namespace pecia::test
