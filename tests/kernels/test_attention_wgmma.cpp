// SPDX-License-Identifier: Apache-2.0
/// When attention goes by wgmma, and its check at the start. What it computes is compared with the
/// reference in test_attention.cpp ("emulated_wgmma").

#include <cmath>
#include <numeric>

#include "kernels/cuda/attention/attention_wgmma.hpp"
#include "kernels/cuda/shared/wgmma.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::cuda::attend_by_wgmma;
using kernels::cuda::AttentionParams;
using kernels::cuda::SwizzledMatrix;

device::Device& emulated_on() {
  static const auto device = device::make_host_device(1);
  return *device;
}

int64_t tiles_attended = 0;
void count_tiles(const AttentionParams& params, int64_t num_tiles, DType keys,
                 device::Stream& stream) {
  tiles_attended += num_tiles;
  attend_by_wgmma(params, num_tiles, keys, stream);
}
void forget_a_tile(const AttentionParams& params, int64_t num_tiles, DType keys,
                   device::Stream& stream) {
  attend_by_wgmma(params, num_tiles - 1, keys, stream);
}
void fail_to_launch(const AttentionParams&, int64_t, DType, device::Stream&) {
  fail<SystemError>("an illegal instruction was encountered");
}

/// Causal attention of the last `rows` of `keys` positions.
struct CausalCall {
  int64_t rows, keys = 200, head_dim = 64, num_heads = 2, num_kv_heads = 1;
  int64_t skewed_bytes = 0;  ///< of the keys
  float scale = 0.125f;
  DType dtype = DType::bf16;
  kernels::RowInvariant row_invariant = kernels::RowInvariant::no;

  /// Returns the tiles that went by wgmma.
  int64_t tiles() const {
    device::Stream stream(1);
    const auto backend =
        make_emulated_backend(emulated_on(), {.attend = count_tiles, .is_checked_at_start = false});
    Tensor q = Tensor::random({rows, num_heads, head_dim}, DType::fp32, 1);
    Tensor k = Tensor::random({num_kv_heads, keys + 1, head_dim}, dtype, 2);
    Tensor out = Tensor::filled({rows, num_heads, head_dim}, 0),
           lse = Tensor::filled({rows, num_heads}, 0);
    std::vector<int64_t> positions(rows);
    std::iota(positions.begin(), positions.end(), keys - rows);
    const std::vector<kernels::AttentionItem> items = {{0, rows, 0, 1}};
    const std::vector<kernels::KeyRun> runs = {{0, (keys + 1) * head_dim, keys, 0}};
    const void* const first = static_cast<const char*>(k.view().data()) + skewed_bytes;
    tiles_attended = 0;
    backend->attention({.q = q.view(),
                        .query_positions = positions,
                        .items = items,
                        .runs = runs,
                        .keys = {first, first},
                        .kv_dtype = dtype,
                        .num_kv_heads = num_kv_heads,
                        .scale = scale,
                        .out = out.view(),
                        .lse = lse.view(),
                        .row_invariant = row_invariant},
                       stream);
    return tiles_attended;
  }
};

TEST(AttentionByWgmma, IsForItemsThatFillATile) {
  EXPECT_EQ(CausalCall{.rows = 63}.tiles(), 0);
  EXPECT_EQ(CausalCall{.rows = 64}.tiles(), 1);
  EXPECT_EQ(CausalCall{.rows = 65}.tiles(), 2);
}

TEST(AttentionByWgmma, IsNotForWhatItCannotDo) {
  EXPECT_EQ((CausalCall{.rows = 64, .head_dim = 112}.tiles()), 0);
  EXPECT_EQ((CausalCall{.rows = 64, .dtype = DType::fp32}.tiles()), 0);
  EXPECT_EQ((CausalCall{.rows = 64, .skewed_bytes = 2}.tiles()), 0);
  EXPECT_EQ((CausalCall{.rows = 64, .scale = -1.0f}.tiles()), 0);
  EXPECT_EQ((CausalCall{.rows = 64, .row_invariant = kernels::RowInvariant::yes}.tiles()), 0);
}

TEST(AttentionByWgmma, PassesItsCheck) {
  const auto backend = make_emulated_backend(emulated_on(), {.attend = count_tiles});
  EXPECT_NE(backend->attention_library().find("our kernels by wgmma"), std::string::npos);
}

std::string complaint_about(kernels::cuda::AttendByWgmma attend) {
  try {
    make_emulated_backend(emulated_on(), {.attend = attend});
  } catch (const SystemError& error) {
    return error.what();
  }
  return "none";
}

TEST(AttentionByWgmma, WithWrongResultsDoesNotStart) {
  const std::string words = complaint_about(forget_a_tile);
  EXPECT_NE(words.find("attention_wgmma_kernel"), std::string::npos) << words;
  EXPECT_NE(words.find("heads of 64 and keys of bf16 differ by"), std::string::npos) << words;
  EXPECT_NE(words.find("PECIA_CUDA_WGMMA=0"), std::string::npos) << words;
}

TEST(AttentionByWgmma, ThatFailsDoesNotStart) {
  const std::string words = complaint_about(fail_to_launch);
  EXPECT_NE(words.find("an illegal instruction"), std::string::npos) << words;
  EXPECT_NE(words.find("PECIA_CUDA_WGMMA=0"), std::string::npos) << words;
}

TEST(AttentionByWgmma, IsNamedWithTheReasonWhereThereIsNone) {
  const auto backend = make_emulated_backend(emulated_on(), {.why_not = "PECIA_CUDA_WGMMA=0"});
  EXPECT_NE(backend->attention_library().find("our kernels without wgmma: PECIA_CUDA_WGMMA=0"),
            std::string::npos);
}

/// The chunks of a matrix are in as many places; eight rows at one column are in the eight groups of
/// four banks, and so is what a row has of a block.
template <int Rows, int Columns>
void expect_places_and_banks() {
  using Matrix = SwizzledMatrix<Rows, Columns>;
  std::vector<int> uses(Matrix::bytes / 16);
  for (int row = 0; row < Rows; ++row)
    for (int column = 0; column < Columns; column += 8) {
      const int at = Matrix::chunk_at(row, column);
      ASSERT_EQ(at % 16, 0);
      ++uses.at(at / 16);
    }
  for (const int count : uses) EXPECT_EQ(count, 1);
  for (int column = 0; column < Columns; column += 8) {
    std::vector<int> groups(8);
    for (int row = 0; row < 8; ++row) ++groups[Matrix::chunk_at(row, column) / 16 % 8];
    for (const int count : groups) EXPECT_EQ(count, 1);
  }
}
TEST(SwizzledMatrix, HasAPlaceForEachChunkAndNoConflicts) {
  expect_places_and_banks<128, 64>();
  expect_places_and_banks<128, 96>();
  expect_places_and_banks<64, 256>();
}

/// By the canonical layouts that cute documents (mma_traits_sm90_gmma.hpp, make_gmma_desc): of 128 bytes
/// K-major with 1024 to the next group; MN-major also with 16384 to the next block; of 64 bytes.
TEST(SwizzledMatrix, HasTheDescriptorsOfTheHardware) {
  using Wide = SwizzledMatrix<128, 128>;
  EXPECT_EQ(Wide::along_columns(0x8400), 0x4000004000010840u);
  EXPECT_EQ(Wide::along_columns(0x8400) + Wide::to_column(80), 0x4000004000010840u + 0x402u);
  EXPECT_EQ(Wide::along_rows(0x8400), 0x4000004004000840u);
  EXPECT_EQ(Wide::along_rows(0x8400) + Wide::to_row(16), 0x40000040040008c0u);
  using Narrow = SwizzledMatrix<128, 96>;
  EXPECT_EQ(Narrow::along_columns(0x8400), 0x8000002000010840u);
  EXPECT_EQ(Narrow::along_rows(0x8400), 0x8000002002000840u);
}

}  // namespace
}  // namespace pecia::test
