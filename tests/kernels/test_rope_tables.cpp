// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::RopeTablesArgs;

struct TablesOf {
  TablesOf(std::vector<int64_t> of_positions, std::vector<int32_t> of_sets,
           std::vector<float> of_frequencies, int64_t pairs, std::vector<float> of_factors = {1})
      : positions(std::move(of_positions)),
        sets(std::move(of_sets)),
        frequencies(std::move(of_frequencies)),
        factors(std::move(of_factors)),
        cos(Tensor::filled({std::ssize(positions), pairs}, 9, 3)),
        sin(cos) {}
  RopeTablesArgs args() { return {positions, sets, frequencies, factors, cos.view(), sin.view()}; }
  void make(Device& device) { device.backend->rope_tables(args(), device.stream); }

  std::vector<int64_t> positions;
  std::vector<int32_t> sets;
  std::vector<float> frequencies;
  std::vector<float> factors;
  Tensor cos, sin;
};

class RopeTables : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Backends, RopeTables, testing::ValuesIn(every_device()), name_of_device);

TEST_P(RopeTables, HoldCosineAndSineOfPositionTimesFrequency) {
  TablesOf tables({0, 3}, {0, 0}, {1, 0.1f, 0.01f, 0.001f}, 4);
  tables.make(device_);
  EXPECT_TRUE(all_close(
      tables.cos.values(),
      std::vector<float>{1, 1, 1, 1, -0.9899925f, 0.95533649f, 0.99955003f, 0.9999955f}, 1e-7));
  EXPECT_TRUE(all_close(
      tables.sin.values(),
      std::vector<float>{0, 0, 0, 0, 0.14112001f, 0.29552021f, 0.0299955f, 0.0029999955f}, 1e-7));
}

TEST_P(RopeTables, TakeTheAngleAsAProductInFp32) {
  // 100003 · 0.1 is 10000.2998046875 in fp32; the cosine of 10000.3 would be -0.81931354.
  TablesOf tables({100003}, {0}, {0.1f}, 1);
  tables.make(device_);
  EXPECT_NEAR(tables.cos.values()[0], -0.81942551, 1e-7);
  EXPECT_NEAR(tables.sin.values()[0], -0.57318570, 1e-7);
}

TEST_P(RopeTables, TurnEachRowByItsSetAndHoldItsFactor) {
  TablesOf tables({7, 7, 1}, {1, 0, 1}, {0.1f, 1, 0.069336127f, 2}, 2, {0.5f, 2.5f});
  tables.make(device_);
  const auto cos = tables.cos.values(), sin = tables.sin.values();
  EXPECT_NEAR(sin[0], 2.5 * std::sin(7 * 0.069336127), 1e-6);
  EXPECT_NEAR(sin[2], 0.5 * std::sin(0.7), 1e-6);
  EXPECT_NEAR(cos[5], 2.5 * std::cos(2), 1e-6);
}

/// Around a million tokens, with the slowest and the fastest turns, and in more rows and pairs than a
/// task or a block has.
TEST_P(RopeTables, HaveTheValuesOfTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t pairs : {0, 1, 16, 33, 64, 128, 1100})
    for (const int64_t rows : {0, 1, 5, 300}) {
      std::vector<float> frequencies;
      for (int64_t i = 0; i < 3 * pairs; ++i)
        frequencies.push_back(std::pow(1e6f, -static_cast<float>(i % std::max<int64_t>(1, pairs)) /
                                                 static_cast<float>(pairs + i / 100)));
      std::vector<int64_t> positions;
      std::vector<int32_t> sets;
      for (int64_t t = 0; t < rows; ++t) {
        positions.push_back(t % 2 == 0 ? t : 1'048'575 - 977 * t);
        sets.push_back(static_cast<int32_t>(t % 3));
      }
      TablesOf found(positions, sets, frequencies, pairs, {1.1386294f, 1, 0.7f}), wanted = found;
      found.make(device_);
      wanted.make(oracle);
      // Only a GPU's own cosine differs: by a unit of fp32, which the factor's rounding may double.
      const double unit = device_.backend->name() == "cuda" ? 0x1p-22 : 0;
      EXPECT_TRUE(all_close(found.cos.values(), wanted.cos.values(), 0, unit)) << rows << " rows";
      EXPECT_TRUE(all_close(found.sin.values(), wanted.sin.values(), 0, unit)) << pairs << " pairs";
      EXPECT_TRUE(found.cos.gaps_intact() && found.sin.gaps_intact());
    }
}

TEST_P(RopeTables, RefuseWhatContradictsItself) {
  const auto refused = [&](const auto& change) {
    TablesOf tables({0, 1}, {0, 1}, {1, 0.5f, 0.25f, 0.125f}, 2, {1, 1});
    RopeTablesArgs args = tables.args();
    change(args);
    EXPECT_THROW(device_.backend->rope_tables(args, device_.stream), InvalidArgument);
    EXPECT_EQ(tables.cos.values(), std::vector<float>(4, 9));
  };
  refused([](auto& args) { args.positions = args.positions.first(1); });
  refused([](auto& args) { args.sets = args.sets.first(1); });
  refused([](auto& args) { args.frequencies = args.frequencies.first(2); });
  refused([](auto& args) { args.frequencies = args.frequencies.first(3); });
  refused([](auto& args) { args.factors = args.factors.first(1); });
  refused([](auto& args) { args.sin = args.sin.slice_columns(0, 1); });
}

}  // namespace
}  // namespace pecia::test
