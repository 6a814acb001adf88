// SPDX-License-Identifier: Apache-2.0
#include "tests/support/compare.hpp"

#include <cmath>

namespace pecia::test {

testing::AssertionResult all_close(std::span<const float> actual, std::span<const float> expected,
                                   double absolute, double relative) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure()
           << actual.size() << " elements, expected " << expected.size();
  double worst = -1, sum_squares = 0;
  size_t worst_index = 0, bad = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], b = expected[i];
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    const double difference = same ? 0 : std::fabs(a - b);
    const double excess = same ? 0 : difference / (absolute + relative * std::fabs(b) + 1e-300);
    if (!(excess <= 1)) ++bad;
    if (!(excess <= worst)) worst = std::isnan(excess) ? INFINITY : excess, worst_index = i;
    if (std::isfinite(difference)) sum_squares += difference * difference;
  }
  if (bad == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << bad << " of " << actual.size() << " elements differ; worst at " << worst_index << ": "
         << actual[worst_index] << ", expected " << expected[worst_index] << "; rms difference "
         << std::sqrt(sum_squares / static_cast<double>(actual.size()));
}

namespace {
std::vector<float> widened(const TensorView& view) {
  PECIA_CHECK(view.dense(), "compare dense views");
  std::vector<float> values(view.elements());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = load_as_float(view.data(), view.dtype(), static_cast<int64_t>(i));
  return values;
}
}  // namespace

testing::AssertionResult all_close(const TensorView& actual, const TensorView& expected,
                                   double absolute, double relative) {
  return all_close(widened(actual), widened(expected), absolute, relative);
}

std::vector<float> random_floats(int64_t count, uint64_t seed, float scale) {
  const auto uniform = [](uint64_t key) {  // splitmix64, in (0, 1]
    key += 0x9e3779b97f4a7c15ull;
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebull;
    return (static_cast<double>((key ^ (key >> 31)) >> 11) + 1.0) * 0x1p-53;
  };
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t key = seed * 0x100000001b3ull + 2 * static_cast<uint64_t>(i);
    values[i] = scale * static_cast<float>(std::sqrt(-2 * std::log(uniform(key))) *
                                           std::cos(6.283185307179586 * uniform(key + 1)));
  }
  return values;
}

std::vector<std::byte> stored_as(DType dtype, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i)
    store_from_float(bytes.data(), dtype, static_cast<int64_t>(i), values[i]);
  return bytes;
}

}  // namespace pecia::test
