#include <cmath>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

PECIA_OP_TEST(KvStore);

TEST_P(KvStore, PutsEachRowIntoItsSlotOfEveryHead) {
  // Two rows of two heads of two elements, into slots 2 and 0 of three.
  Tensor x({2, 2, 2}, DType::fp32, {1, 2, 3, 4, 5, 6, 7, 8});
  Tensor cache({2, 3, 2}, dtype_, std::vector<float>(12, -1.0f));
  const std::vector<int64_t> slots = {2, 0};

  device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream);

  EXPECT_EQ(cache.values(), (std::vector<float>{5, 6, -1, -1, 1, 2,  //
                                                7, 8, -1, -1, 3, 4}));
}

TEST_P(KvStore, RoundsAsTheScalarConversion) {
  std::vector<float> values = random_floats(2000, 1, 100.0f);
  for (int bit = -30; bit < 30; ++bit)  // ties, just above and just below, both signs
    for (const float fraction :
         {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f + 0x1.02p-8f, 1 + 0x1p-11f})
      for (const float sign : {1.0f, -1.0f}) values.push_back(sign * std::ldexp(fraction, bit));
  for (const float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65519.0f, 65520.0f, 3.4e38f,
                              0x1p-24f, 0x1p-25f, 0x1.8p-24f})
    values.insert(values.end(), 17, special);  // in vectors and in the rest
  const auto count = static_cast<int64_t>(values.size());
  Tensor x({1, 1, count}, DType::fp32, values);
  Tensor cache({1, 1, count}, dtype_, std::vector<float>(count, 0.0f));
  const std::vector<int64_t> slots = {0};

  device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream);

  EXPECT_TRUE(all_close(cache.values(), Tensor({1, 1, count}, dtype_, values).values(), 0));
}

TEST_P(KvStore, AgreesWithTheReferenceAndWritesNothingElse) {
  Device oracle = make_device("reference");
  for (const int64_t head_dim : {1, 8, 17, 64, 80, 128})
    for (const int64_t rows : {0, 1, 100}) {
      const int64_t capacity = 130;
      Tensor x = Tensor::random({rows, 3, head_dim}, DType::fp32, 7);
      Tensor cache({3, capacity, head_dim}, dtype_,
                   std::vector<float>(3 * capacity * head_dim, -7.0f));
      Tensor expected = cache;
      std::vector<int64_t> slots(rows);
      for (int64_t t = 0; t < rows; ++t) slots[t] = (t * 37 + 11) % capacity;
      device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream);
      oracle.backend->kv_store({x.view(), slots, expected.view()}, oracle.stream);
      EXPECT_EQ(cache.values(), expected.values()) << "head_dim " << head_dim;
    }
}

TEST_P(KvStore, RefusesASlotOutsideBeforeWriting) {
  Tensor x = Tensor::filled({2, 1, 2}, 5);
  Tensor cache({1, 3, 2}, dtype_, std::vector<float>(6, -1.0f));
  for (const int64_t outside : {int64_t{-1}, int64_t{3}}) {
    const std::vector<int64_t> slots = {0, outside};
    EXPECT_THROW(device_.backend->kv_store({x.view(), slots, cache.view()}, device_.stream),
                 InvalidArgument);
  }
  EXPECT_EQ(cache.values(), std::vector<float>(6, -1.0f));
}

}  // namespace
}  // namespace pecia::test
