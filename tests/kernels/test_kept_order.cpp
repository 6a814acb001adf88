// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::KeptOrderArgs;
using kernels::OrderItem;
using kernels::PlaceRun;

class KeptOrder : public testing::TestWithParam<std::string> {
 protected:
  Device device_ = make_device(GetParam());

  /// Of tokens that lie at 0, 1, ….
  std::vector<int32_t> order(const std::vector<float>& importance, int64_t first, int64_t last,
                             const std::vector<int64_t>& counts) {
    const auto tokens = std::ssize(importance);
    const std::vector<PlaceRun> runs = {{0, tokens}};
    const std::vector<OrderItem> items = {{0, tokens, first, last, 0, std::ssize(counts), 0, 1, 0}};
    return order(importance, items, counts, runs, tokens);
  }
  std::vector<int32_t> order(const std::vector<float>& importance, std::span<const OrderItem> items,
                             std::span<const int64_t> counts, std::span<const PlaceRun> runs,
                             int64_t entries) {
    std::vector<int32_t> order(entries, -1);
    device_.backend->kept_order(
        {TensorView(importance.data(), DType::fp32, {std::ssize(importance)}), items, counts, runs,
         TensorView(static_cast<void*>(order.data()), DType::int32, {entries})},
        device_.stream);
    return order;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, KeptOrder, testing::ValuesIn(every_device()), name_of_device);

using Places = std::vector<int32_t>;

TEST_P(KeptOrder, HasWhatEachLevelKeepsFirst) {
  EXPECT_EQ(order({1, 5, 2, 9, 0}, 0, 1, {2, 4}), (Places{3, 4, 1, 2, 0}));
  EXPECT_EQ(order({1, 1, 1, 1}, 0, 0, {2, 3}), (Places{0, 1, 2, 3})) << "the earlier of equal ones";
  EXPECT_EQ(order({0, NAN, -3, 1}, 0, 0, {1, 2}), (Places{3, 0, 1, 2}))
      << "what is no importance is none";
  EXPECT_EQ(order({0, infinity, -infinity, 1}, 0, 0, {1, 2}), (Places{1, 3, 0, 2}));
  EXPECT_EQ(order({3, 2, 1}, 0, 0, {}), (Places{0, 1, 2}));
  EXPECT_EQ(order({3, 2, 1}, 0, 2, {2, 2, 3}), (Places{1, 2, 0}));
  EXPECT_EQ(order({3, 2, 1}, 0, 0, {0, 0, 1}), (Places{0, 1, 2}));
  EXPECT_EQ(order({1, 5, 2, 9, 0}, 1, 1, {3}), (Places{0, 3, 4, 1, 2}));
  EXPECT_EQ(order({1, 5, 2, 9, 0}, 3, 4, {2}), (Places{0, 1, 2, 3, 4})) << "all are first";
  EXPECT_EQ(order({}, 0, 0, {0}), Places());
  EXPECT_THROW(order({1}, 0, 2, {}), InvalidArgument);
  EXPECT_THROW(order({1}, 0, 0, {2}), InvalidArgument);
  EXPECT_THROW(order({1, 2, 3}, 0, 0, {2, 1}), InvalidArgument);
}

/// Two items, of which the first one's numbers come after the second one's.
TEST_P(KeptOrder, NamesPlacesInRuns) {
  const std::vector<PlaceRun> runs = {{20, 2}, {10, 0}, {7, 3}, {100, 2}};
  const std::vector<int64_t> counts = {1, 3, 2};
  const std::vector<OrderItem> items = {{2, 5, 0, 0, 0, 2, 0, 3, 3}, {0, 2, 0, 0, 2, 1, 3, 1, 0}};
  EXPECT_EQ(order({NAN, NAN, 1, 2, 3, 5, 4}, items, counts, runs, 9),
            (Places{100, 101, -1, 8, 7, 9, 20, 21, -1}))
      << "of the second item no number is read";
}

TEST_P(KeptOrder, NeedsNoNumbersWhereNothingIsDivided) {
  const std::vector<PlaceRun> runs = {{4, 3}};
  const std::vector<int64_t> counts = {0, 3};
  const std::vector<OrderItem> items = {{0, 3, 1, 1, 0, 2, 0, 1, 0}};
  Places found(3, -1);
  const TensorView to(static_cast<void*>(found.data()), DType::int32, {3});
  device_.backend->kept_order({{}, items, counts, runs, to}, device_.stream);
  EXPECT_EQ(found, (Places{4, 5, 6}));
}

/// More tokens than a block has threads, with ties, of which counts cut some.
TEST_P(KeptOrder, AgreesWithTheReference) {
  Device oracle = make_device("reference");
  for (const int64_t tokens : {1, 33, 1024, 2500}) {
    std::vector<float> importance = random_floats(tokens, static_cast<uint64_t>(tokens));
    for (int64_t i = 0; i < tokens; i += 3) importance[i] = static_cast<float>(i % 7) / 8;
    const int64_t first = std::min<int64_t>(tokens, 16), last = std::min<int64_t>(tokens, 40);
    std::vector<int64_t> counts;
    for (const double share : {0.1, 0.2, 0.21, 0.8})
      counts.push_back(static_cast<int64_t>(share * static_cast<double>(tokens)));
    const Places found = order(importance, first, last, counts);
    std::swap(device_, oracle);
    EXPECT_EQ(found, order(importance, first, last, counts)) << tokens;
    std::swap(device_, oracle);
  }
}

}  // namespace
}  // namespace pecia::test
