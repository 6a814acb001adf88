// SPDX-License-Identifier: Apache-2.0
/// Rows that travel to the ranks that hold their experts, and back.

#include <gtest/gtest.h>
#include <mpi.h>

#include "lib/base/core/random.hpp"
#include "lib/model/layers/expert_exchange.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::model {
namespace {

using kernels::Accumulate;
using parallel::ExpertChoice;
using parallel::RowRange;

constexpr int64_t width = 3, experts = 7, per_row = 2;

/// How rows choose their experts, as functions of the rank and the row.
enum class Choose { at_random, rank_0_alone, own_rank_alone };

/// Whole numbers, so that sums are exact in any order.
float value(int rank, int64_t row, int64_t column) {
  return static_cast<float>(100 * rank + 10 * row + column);
}

class Exchange : public testing::TestWithParam<Choose> {
 protected:
  RowRange held(int rank) const { return parallel::row_part({0, experts}, world_->size(), rank); }
  /// None on the second rank.
  int64_t rows_of(int rank) const { return rank == 1 ? 0 : 5 + 3 * rank; }

  std::vector<ExpertChoice> choices_of(int rank) const {
    std::vector<ExpertChoice> choices;
    for (int64_t row = 0; row < rows_of(rank); ++row) {
      const RowRange from = GetParam() == Choose::rank_0_alone     ? held(0)
                            : GetParam() == Choose::own_rank_alone ? held(rank)
                                                                   : RowRange{0, experts};
      const int64_t first = static_cast<int64_t>(mix(rank, static_cast<uint64_t>(row)) %
                                                 static_cast<uint64_t>(from.size()));
      for (int64_t j = 0; j < per_row; ++j)
        choices.push_back({static_cast<int32_t>(from.begin + (first + j) % from.size()),
                           static_cast<float>(1 + j)});
    }
    return choices;
  }
  /// A row's result by the experts that `holds` says: each multiplies by its number and one.
  template <typename Holds>
  float result(int rank, int64_t row, int64_t column, const Holds& holds) const {
    float sum = 0;
    const auto choices = choices_of(rank);
    for (int64_t j = 0; j < per_row; ++j) {
      const auto [expert, weight] = choices[row * per_row + j];
      if (holds(expert)) sum += weight * static_cast<float>(expert + 1) * value(rank, row, column);
    }
    return sum;
  }

  std::unique_ptr<comm::Communicator> world_ =
      comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  test::CpuCompute compute_;
};

INSTANTIATE_TEST_SUITE_P(Choices, Exchange,
                         testing::Values(Choose::at_random, Choose::rank_0_alone,
                                         Choose::own_rank_alone));

TEST_P(Exchange, TakesEachRowOnceToARankAndAddsWhatComesBack) {
  const int own = world_->rank(), size = world_->size();
  ExpertExchange exchange(compute_);
  std::vector<RowRange> all_held;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank)
    all_held.push_back(held(rank)), counts.push_back(rows_of(rank));
  exchange.begin_pass(*world_, all_held);

  std::vector<float> x, weights, out(rows_of(own) * width, 1000);
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < rows_of(own); ++row)
    for (int64_t column = 0; column < width; ++column) x.push_back(value(own, row, column));
  for (const auto& [expert, weight] : choices_of(own))
    chosen.push_back(expert), weights.push_back(weight);
  const TensorView rows(x.data(), DType::fp32, {rows_of(own), width});
  const TensorView to(out.data(), DType::fp32, {rows_of(own), width});
  const comm::Traffic before = world_->traffic();
  const auto arrived =
      exchange.send(rows, TensorView(chosen.data(), DType::int32, {rows_of(own), per_row}),
                    TensorView(weights.data(), DType::fp32, {rows_of(own), per_row}), counts);

  // Here the experts: what has come is what chose one of them, in the order of ranks and rows.
  std::vector<float> sums;
  int64_t next = 0, pairs = 0;
  const auto is_here = [&](int32_t e) { return held(own).begin <= e && e < held(own).end; };
  for (int rank = 0; rank < size; ++rank)
    for (const int32_t row : parallel::rows_taking(choices_of(rank), per_row, held(own))) {
      for (int64_t column = 0; column < width; ++column) {
        EXPECT_EQ(static_cast<const float*>(arrived.rows.row(next))[column],
                  value(rank, row, column));
        sums.push_back(result(rank, row, column, is_here));
      }
      for (int64_t j = 0; j < per_row; ++j) {
        const ExpertChoice choice = choices_of(rank)[row * per_row + j];
        EXPECT_EQ(static_cast<const int32_t*>(arrived.chosen.row(next))[j], choice.expert);
        EXPECT_EQ(static_cast<const float*>(arrived.weights.row(next))[j], choice.weight);
        pairs += is_here(choice.expert);
      }
      ++next;
    }
  ASSERT_EQ(arrived.rows.rows(), next);
  EXPECT_EQ(arrived.pairs, pairs);
  exchange.bring_back(TensorView(sums.data(), DType::fp32, {next, width}), to, Accumulate::yes);

  for (int64_t row = 0; row < rows_of(own); ++row)
    for (int64_t column = 0; column < width; ++column)
      EXPECT_EQ(out[row * width + column],
                1000 + result(own, row, column, [](int32_t) { return true; }))
          << "row " << row << ", column " << column;

  // Choices go to all; a row to each other rank that holds an expert of it; its sum comes from there.
  int64_t bytes = rows_of(own) * per_row * 8 * (size - 1);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == own) continue;
    bytes += std::ssize(parallel::rows_taking(choices_of(own), per_row, held(rank))) * width * 4;
    bytes += std::ssize(parallel::rows_taking(choices_of(rank), per_row, held(own))) * width * 4;
  }
  EXPECT_EQ(world_->traffic().bytes - before.bytes, bytes);
}

}  // namespace
}  // namespace pecia::model
