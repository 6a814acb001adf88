// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "lib/base/core/random.hpp"
#include "tests/kernels/key_runs.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionFrom;
using kernels::AttentionItem;
using kernels::empty_lse;
using kernels::KeyRun;
using kernels::RowInvariant;
using kernels::Window;

/// Different ones, from 1/2 to 1.
Tensor random_scales(int64_t rows, int64_t columns, int64_t seed) {
  std::vector<float> scales(rows * columns);
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = 0.5f + static_cast<float>((i * 37 + seed) % 101) / 202.0f;
  return Tensor({rows, columns}, DType::fp32, scales);
}

/// Queries, and keys with values in the cache's layout; keys of runs are cut out of it. Keys and
/// values of fp8 are codes with scales.
struct Problem {
  Heads heads;
  int64_t num_rows, num_keys;
  Tensor q, k, v, k_scales, v_scales;
  std::vector<int64_t> query_positions, key_positions;
  std::vector<AttentionItem> items;
  std::vector<KeyRun> runs;
  DType dtype;
  Window window = {};
  RowInvariant row_invariant = RowInvariant::no;
  int merged = 1;
  bool hides_scales = false;
  int64_t skewed_bytes = 0;  ///< by which keys are not where a cache would begin

  /// Queries are the last of the keys' positions 0, 1, …; one item, one run.
  Problem(Heads shape, int64_t rows, int64_t keys, DType type, float query_scale = 1.0f)
      : heads(shape),
        num_rows(rows),
        num_keys(keys),
        q({rows, shape.num_heads, shape.head_dim}, DType::fp32,
          random_floats(rows * shape.num_heads * shape.head_dim, 1, query_scale)),
        k(Tensor::random({shape.num_kv_heads, keys, shape.head_dim}, type, 2)),
        v(Tensor::random({shape.num_kv_heads, keys, shape.head_dim}, type, 3)),
        k_scales(random_scales(shape.num_kv_heads, keys, 4)),
        v_scales(random_scales(shape.num_kv_heads, keys, 5)),
        query_positions(rows),
        key_positions(keys),
        dtype(type) {
    std::iota(query_positions.begin(), query_positions.end(), keys - rows);
    std::iota(key_positions.begin(), key_positions.end(), 0);
    cut_runs({0, keys});
  }

  /// The runs of one item: keys [begin, begin + count), at their positions.
  void add_keys(int64_t begin, int64_t count) {
    add_runs(runs, std::span(key_positions).subspan(begin, count), begin, heads.head_dim,
             num_keys * heads.head_dim);
  }

  kernels::StoredKeys keys() {
    const bool scaled = dtype == DType::fp8 && !hides_scales;
    return {static_cast<char*>(k.view().data()) + skewed_bytes, v.view().data(),
            scaled ? k_scales.view().as<float>() : nullptr,
            scaled ? v_scales.view().as<float>() : nullptr};
  }

  /// One item, one run of these; codes stand for themselves.
  void set_keys(const std::vector<float>& keys, const std::vector<float>& values) {
    k = Tensor({heads.num_kv_heads, num_keys, heads.head_dim}, dtype, keys);
    v = Tensor({heads.num_kv_heads, num_keys, heads.head_dim}, dtype, values);
    k_scales = v_scales = Tensor::filled({heads.num_kv_heads, num_keys}, 1.0f);
  }

  /// One item of the keys [bounds[0], bounds[1]), [bounds[1], bounds[2]), …
  void cut_runs(const std::vector<int64_t>& bounds) {
    runs.clear();
    for (size_t i = 0; i + 1 < bounds.size(); ++i) add_keys(bounds[i], bounds[i + 1] - bounds[i]);
    items = {{0, num_rows, 0, static_cast<int64_t>(runs.size())}};
  }
};

struct Result {
  std::vector<float> out, lse;
};

AttentionArgs args_of(Problem& p, Tensor& out, Tensor& lse) {
  return {.q = p.q.view(),
          .query_positions = p.query_positions,
          .items = p.items,
          .runs = p.runs,
          .keys = p.keys(),
          .kv_dtype = p.dtype,
          .num_kv_heads = p.heads.num_kv_heads,
          .scale = 1 / std::sqrt(static_cast<float>(p.heads.head_dim)),
          .window = p.window,
          .out = out.view(),
          .lse = lse.view(),
          .row_invariant = p.row_invariant,
          .merged = p.merged};
}

Result attend(Problem& p, Device& device) {
  Tensor out = Tensor::filled({p.num_rows, p.heads.num_heads, p.heads.head_dim}, 55.0f);
  Tensor lse = Tensor::filled({p.num_rows, p.heads.num_heads}, 55.0f);
  device.backend->attention(args_of(p, out, lse), device.stream);
  return {out.values(), lse.values()};
}

/// The result over the keys before and those of the problem.
Result attend_more(Problem& p, const Result& before, Device& device) {
  Tensor out({p.num_rows, p.heads.num_heads, p.heads.head_dim}, DType::fp32, before.out);
  Tensor lse({p.num_rows, p.heads.num_heads}, DType::fp32, before.lse);
  AttentionArgs args = args_of(p, out, lse);
  args.from = AttentionFrom::result;
  device.backend->attention(args, device.stream);
  return {out.values(), lse.values()};
}

/// What tells a problem from others whose rows are as many. Row invariance changes no result of the
/// reference, and neither does who asks.
std::string key_of(Problem& p) {
  uint64_t hash = 0;
  const auto add = [&](const void* data, size_t bytes) {
    hash = mix(hash, std::string_view(static_cast<const char*>(data), bytes));
  };
  for (Tensor* const tensor : {&p.q, &p.k, &p.v, &p.k_scales, &p.v_scales}) {
    const TensorView view = tensor->view();
    add(view.data(), view.elements() * size_of(view.dtype()));
  }
  add(p.query_positions.data(), p.query_positions.size() * sizeof(int64_t));
  for (const AttentionItem& item : p.items) add(&item, sizeof item);
  for (const KeyRun& run : p.runs) add(&run, sizeof run);
  return fmt::format("{} {} {} {} {} {} {} {:x}", p.heads.num_heads, p.heads.num_kv_heads,
                     p.heads.head_dim, p.num_rows, p.num_keys, name_of(p.dtype), p.window.tokens,
                     hash);
}

/// The reference is slow, so its results are kept for all backends.
const Result& by_the_reference(Problem& p) {
  static std::map<std::string, Result> known;
  const std::string key = key_of(p);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  Device oracle = make_device("reference");
  return known.emplace(key, attend(p, oracle)).first->second;
}

PECIA_OP_TEST_OF(Attention, kv_types);
/// Kernels for many rows, which get few here.
INSTANTIATE_TEST_SUITE_P(BackendsOfManyRows, Attention,
                         testing::Combine(testing::ValuesIn(every_kernel_of_many_rows()),
                                          testing::Values(DType::bf16, DType::fp16, DType::fp8)),
                         name_of_param);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Attention);

/// Scores of standard normal vectors, divided by √head_dim, err by about 2⁻²⁴ · √head_dim each, and
/// every weight by that share of itself; `query_scale` enlarges scores and with them their errors.
/// Rounded queries shift a score, which is up to 10 where heads have one element, by their share of
/// it, rounded weights a mean of values by less.
void expect_equal_to_reference(Problem& p, Device& device, double query_scale = 1) {
  const Result actual = attend(p, device), &expected = by_the_reference(p);
  const double tolerance = (4e-6 + 12 * device.rounding(p.dtype)) * query_scale;
  EXPECT_TRUE(all_close(actual.out, expected.out, tolerance));
  EXPECT_TRUE(all_close(actual.lse, expected.lse, tolerance, 0x1p-22));
}

TEST_P(Attention, OfTwoKeysByHand) {
  // Scale 1, so head_dim is 1; scores are q·k = 0 and log 3, weights 1/4 and 3/4.
  Problem p({1, 1, 1}, 2, 2, dtype_);
  p.q = Tensor({2, 1, 1}, DType::fp32, {5.0f, std::log(3.0f)});
  p.set_keys({0.0f, 1.0f}, {8.0f, 4.0f});
  const Result result = attend(p, device_);
  // Row 0 sees key 0 only. log 3 may be rounded to the keys' type, and weights too.
  const double tolerance = 1e-6 + 3 * device_.rounding(dtype_);
  EXPECT_TRUE(all_close(result.out, std::vector<float>{8.0f, 5.0f}, tolerance));
  EXPECT_TRUE(all_close(result.lse, std::vector<float>{0.0f, std::log(4.0f)}, tolerance));
}

TEST_P(Attention, PairsQueryHeadsWithTheirKvHead) {
  // Four heads on two KV heads; one key, so out is its value.
  Problem p({4, 2, 1}, 1, 1, dtype_);
  p.set_keys({1.0f, 1.0f}, {3.0f, -2.0f});
  EXPECT_EQ(attend(p, device_).out, (std::vector<float>{3, 3, -2, -2}));
}

TEST_P(Attention, AWindowForgetsFarKeys) {
  // Equal scores: out is the mean of the values seen. Window 2: positions p − 1 and p.
  Problem p({1, 1, 1}, 4, 4, dtype_);
  p.q = Tensor::filled({4, 1, 1}, 0.0f);
  p.set_keys({1, 2, 3, 4}, {1, 3, 5, 11});
  p.window = 2;
  EXPECT_TRUE(all_close(attend(p, device_).out, std::vector<float>{1, 2, 4, 8}, 1e-6));
}

TEST_P(Attention, RowsThatSeeNothingAreEmptyAndRowsOfNoItemUntouched) {
  Problem p({2, 1, 8}, 4, 3, dtype_);
  p.query_positions = {2, 9, 50, 2};
  p.key_positions = {9, 10, 11};
  p.cut_runs({0, 3});
  p.items = {{0, 2, 0, 1}, {2, 1, 1, 0}};  // row 2 has no runs, row 3 is of no item
  const Result result = attend(p, device_);
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(result.out[i], 0.0f);
    EXPECT_EQ(result.out[32 + i], 0.0f);
    EXPECT_EQ(result.out[48 + i], 55.0f);
  }
  EXPECT_EQ(result.lse[0], empty_lse);
  EXPECT_TRUE(std::isfinite(result.lse[2]));
  EXPECT_EQ(result.lse[4], empty_lse);
  EXPECT_EQ(result.lse[6], 55.0f);
}

TEST_P(Attention, OfNoItemsOrNoRowsDoesNothing) {
  Problem p({2, 1, 8}, 1, 1, dtype_);
  p.items = {{1, 0, 0, 1}, {0, 0, 0, 0}};
  EXPECT_EQ(attend(p, device_).lse, (std::vector<float>{55, 55}));
  p.items.clear();
  EXPECT_EQ(attend(p, device_).lse, (std::vector<float>{55, 55}));
}

TEST_P(Attention, AgreesWithTheReferenceForEveryHeadShape) {
  for (const int64_t head_dim : {1, 8, 16, 24, 33, 64, 80, 96, 128, 256, 512})
    for (const int64_t group : {1, 2, 3, 7})
      for (const int64_t rows : {1, 9}) {
        Problem p({group * 2, 2, head_dim}, rows, 135, dtype_);
        SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << ", group " << group << ", "
                                        << rows << " queries");
        expect_equal_to_reference(p, device_);
      }
}

TEST_P(Attention, AgreesWithTheReferenceAroundTilesAndBlocks) {
  struct Lengths {
    int64_t rows, keys;
  };
  // Blocks have 128 keys; tiles of three heads 128 queries.
  for (const auto [rows, keys] : {Lengths{1, 1},
                                  {1, 127},
                                  {1, 128},
                                  {1, 129},
                                  {2, 16},
                                  {5, 17},
                                  {6, 300},
                                  {127, 127},
                                  {128, 128},
                                  {129, 129},
                                  {130, 257},
                                  {260, 260}})
    for (const int64_t window : {0, 1, 40, 200}) {
      Problem p({3, 1, 16}, rows, keys, dtype_);
      p.window = window;
      SCOPED_TRACE(testing::Message()
                   << rows << " queries, " << keys << " keys, window " << window);
      expect_equal_to_reference(p, device_);
    }
}

Result by_plain_loops(Problem& p);

/// A row that begins a chunk sees itself alone, and tiles have rows of several chunks. Heads of 64
/// are for GPUs' tensor cores.
TEST_P(Attention, InChunksIsThatOfPositions) {
  for (const int64_t head_dim : {24, 64})
    for (const auto [rows, keys, chunk] :
         std::initializer_list<std::array<int64_t, 3>>{{1, 65, 64},
                                                       {1, 64, 64},
                                                       {5, 300, 1},
                                                       {129, 129, 32},
                                                       {200, 700, 90},
                                                       {260, 260, 1000},
                                                       {1, 9000, 4500}}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << keys << " keys, chunk " << chunk);
      if (head_dim == 64 && keys > 300 && rows > 1) continue;
      Problem p({6, 2, head_dim}, rows, keys, dtype_);
      p.window = Window::chunks_of(chunk);
      p.cut_runs({0, keys / 3, keys});
      const Result expected = by_plain_loops(p);
      for (const RowInvariant row_invariant : {RowInvariant::no, RowInvariant::yes}) {
        p.row_invariant = row_invariant;
        const Result actual = attend(p, device_);
        const double tolerance = 4e-6 + 12 * device_.rounding(dtype_);
        EXPECT_TRUE(all_close(actual.out, expected.out, tolerance));
        EXPECT_TRUE(all_close(actual.lse, expected.lse, tolerance, 0x1p-22));
      }
    }
}

TEST_P(Attention, SplitsLongContextsOfFewQueries) {
  for (const int64_t rows : {1, 3}) {
    Problem p({6, 2, 16}, rows, 5000, dtype_);
    expect_equal_to_reference(p, device_);
    p.query_positions.assign(rows, 2500);  // the later parts are empty
    expect_equal_to_reference(p, device_);
    p.query_positions.assign(rows, -1);  // all parts are
    expect_equal_to_reference(p, device_);
  }
}

TEST_P(Attention, TakesKeysInAnyOrderFromManyRuns) {
  Problem p({4, 2, 24}, 40, 400, dtype_);
  // Keys in the order of a multiplication, with every third position left out.
  for (int64_t s = 0; s < p.num_keys; ++s) p.key_positions[s] = (s * 173 % 400) * 3 / 2;
  for (int64_t t = 0; t < p.num_rows; ++t) p.query_positions[t] = (t * 29 % 40) * 16;
  p.cut_runs({0, 400});
  expect_equal_to_reference(p, device_);
  p.cut_runs({0, 1, 1, 4, 9, 16, 150, 151, 152, 300, 399, 400, 400});
  expect_equal_to_reference(p, device_);
  p.window = 100;
  expect_equal_to_reference(p, device_);
}

/// Key by key range in any order, as in a ring, against all keys at once.
TEST_P(Attention, ContinuesAResultOverOtherKeys) {
  struct Lengths {
    int64_t rows, keys, cut;
  };
  // Few rows of many keys are split; 200 rows of three heads are two tiles.
  for (const auto [rows, keys, cut] :
       {Lengths{1, 2, 1}, {5, 300, 131}, {1, 9000, 4500}, {200, 600, 500}})
    for (const int64_t window : {0, 150}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << keys << " keys, window " << window);
      Problem p({6, 2, 24}, rows, keys, dtype_);
      p.window = window;
      const Result& expected = by_the_reference(p);
      p.cut_runs({cut, keys});
      Result result = attend(p, device_);
      p.cut_runs({0, cut});
      if (!device_.backend->continues_attention()) {
        EXPECT_THROW(attend_more(p, result, device_), Unsupported);
        return;
      }
      result = attend_more(p, result, device_);
      const double tolerance = 8e-6 + 12 * device_.rounding(dtype_);
      EXPECT_TRUE(all_close(result.out, expected.out, tolerance));
      EXPECT_TRUE(all_close(result.lse, expected.lse, tolerance, 0x1p-21));
    }
}

/// Rows that see nothing more, rows of no item, and a result that is empty so far.
TEST_P(Attention, KeepsTheBitsOfAResultWhereNoKeyIsSeen) {
  if (!device_.backend->continues_attention()) return;
  Problem p({2, 1, 8}, 5, 3, dtype_);
  p.query_positions = {11, 12, 2, 40, 2};
  p.key_positions = {9, 10, 11};
  p.cut_runs({0, 3});
  const Result fresh = attend(p, device_);
  p.items = {{0, 3, 0, 1}, {3, 1, 1, 0}};  // row 2 sees no key, row 3 has no runs, row 4 no item
  Result before{random_floats(5 * 2 * 8, 7), random_floats(5 * 2, 8)};
  for (const int64_t row : {0, 2}) {  // nothing yet
    std::fill_n(before.out.begin() + row * 16, 16, 0.0f);
    std::fill_n(before.lse.begin() + row * 2, 2, empty_lse);
  }
  const Result result = attend_more(p, before, device_);
  const auto row = [](const Result& of, int64_t index) {
    return std::pair(
        std::vector<float>(of.out.begin() + index * 16, of.out.begin() + index * 16 + 16),
        std::vector<float>(of.lse.begin() + index * 2, of.lse.begin() + index * 2 + 2));
  };
  EXPECT_EQ(row(result, 0), row(fresh, 0));
  EXPECT_NE(row(result, 1), row(before, 1));
  EXPECT_NE(row(result, 1), row(fresh, 1));
  for (const int64_t kept : {2, 3, 4}) EXPECT_EQ(row(result, kept), row(before, kept));
}

/// The bits of such results would depend on which keys come first.
TEST_P(Attention, ContinuesNoResultThatIsRowInvariantOrMerged) {
  if (!device_.backend->continues_attention()) return;
  Problem p({2, 1, 8}, 3, 6, dtype_);
  const Result before = attend(p, device_);
  EXPECT_NO_THROW(attend_more(p, before, device_));
  p.row_invariant = RowInvariant::yes;
  EXPECT_THROW(attend_more(p, before, device_), InvalidArgument);
  p.cut_runs({0, 3, 6});
  p.items = {{0, 3, 0, 1}, {0, 3, 1, 1}};
  p.merged = 2;
  EXPECT_NO_THROW(attend(p, device_));
  EXPECT_THROW(attend_more(p, before, device_), InvalidArgument);
}

TEST_P(Attention, TakesQueriesThatAreRoundedAlready) {
  for (const int64_t head_dim : {24, 64, 80, 96, 128})
    for (const int64_t rows : {1, 40})  // many heads and keys to one row, tiles of rows
      for (const DType narrow : {DType::bf16, DType::fp16}) {
        SCOPED_TRACE(testing::Message()
                     << rows << " rows of " << head_dim << ", " << name_of(narrow));
        Problem p({6, 2, head_dim}, rows, 300, dtype_);
        const Result rounded_by_op = attend(p, device_);
        const std::vector<float> q = p.q.values();
        p.q = Tensor({rows, 6, head_dim}, narrow, q);
        if (device_.backend->query_type(dtype_, head_dim) == narrow) {
          const Result result = attend(p, device_);
          EXPECT_EQ(result.out, rounded_by_op.out);
          EXPECT_EQ(result.lse, rounded_by_op.lse);
        } else {
          EXPECT_THROW(attend(p, device_), Unsupported);
        }
      }
}

/// No kernel for tensor cores reads such keys; another one takes rounded queries as they are.
TEST_P(Attention, TakesRoundedQueriesForKeysAtAnyAddress) {
  Problem p({2, 1, 64}, 5, 40, dtype_);
  const DType narrow = device_.backend->query_type(dtype_, 64);
  const std::vector<float> q = p.q.values();
  p.q = Tensor({5, 2, 64}, DType::fp32, Tensor({5, 2, 64}, narrow, q).values());
  p.skewed_bytes = static_cast<int64_t>(size_of(dtype_));
  p.runs[0].num_keys -= 1;
  const Result of_fp32 = attend(p, device_);
  p.q = Tensor({5, 2, 64}, narrow, q);
  const Result result = attend(p, device_);
  EXPECT_EQ(result.out, of_fp32.out);
  EXPECT_EQ(result.lse, of_fp32.lse);
}

/// Queries that the products' type holds exactly: then tensor cores, too, sum exact products of q
/// and k, and a log-sum-exp tells of a single key too many or too few. Weights are still rounded:
/// in fp8 after their scales, so that of a single key too, whose value is up to 5.
void expect_exact_scores(Problem& p, Device& device) {
  const std::vector<float> q = p.q.values();
  p.q = Tensor({p.num_rows, p.heads.num_heads, p.heads.head_dim}, DType::fp32,
               Tensor({static_cast<int64_t>(q.size())}, product_type(p.dtype), q).values());
  const Result actual = attend(p, device), &expected = by_the_reference(p);
  const double weight_error = p.dtype == DType::fp32 ? 0 : device.weight_error;
  EXPECT_TRUE(all_close(actual.lse, expected.lse, 6e-6 + weight_error, 0x1p-21));
  EXPECT_TRUE(all_close(actual.out, expected.out,
                        4e-6 + (p.dtype == DType::fp8 ? 5 : 3) * device.rounding(p.dtype)));
}

TEST_P(Attention, SeesExactlyItsKeysInEveryTile) {
  struct Shape {
    Heads heads;
    int64_t rows, keys, window;
  };
  // Tiles of 64 keys, and of 64 or 16 rows of the heads that share a KV head; few rows divide keys.
  for (const Shape& shape : {Shape{{2, 2, 64}, 63, 63, 0},
                             {{2, 1, 64}, 33, 129, 0},
                             {{4, 1, 128}, 4, 64, 0},
                             {{4, 1, 128}, 5, 65, 0},
                             {{8, 1, 128}, 2, 1000, 0},
                             {{3, 1, 80}, 1, 700, 0},
                             {{3, 1, 80}, 50, 190, 0},
                             {{6, 2, 96}, 1, 500, 300},
                             {{6, 2, 96}, 40, 300, 70},
                             {{2, 1, 128}, 70, 200, 1},
                             {{20, 1, 64}, 1, 400, 0}}) {
    SCOPED_TRACE(testing::Message()
                 << shape.rows << " rows, " << shape.keys << " keys, " << shape.heads.num_heads
                 << " heads of " << shape.heads.head_dim << ", window " << shape.window);
    Problem p(shape.heads, shape.rows, shape.keys, dtype_);
    p.window = shape.window;
    expect_exact_scores(p, device_);
    // The same keys out of order, in runs, some of them never seen.
    for (int64_t s = 0; s < shape.keys; ++s) p.key_positions[s] = s * 173 % shape.keys;
    p.cut_runs({0, shape.keys / 3, shape.keys / 3 + 1, shape.keys});
    expect_exact_scores(p, device_);
    // Weights of 1 are exact everywhere: the log-sum-exp counts the keys.
    p.q = Tensor::filled({shape.rows, shape.heads.num_heads, shape.heads.head_dim}, 0.0f);
    EXPECT_TRUE(all_close(attend(p, device_).lse, by_the_reference(p).lse, 6e-6, 0x1p-21));
  }
}

/// Softmax over the keys at explicit positions, one list for each run, in double.
Result by_plain_loops(Problem& p) {
  const std::vector<float> q = p.q.values(), k = p.k.values(), v = p.v.values();
  const std::vector<float> k_scales = p.k_scales.values(), v_scales = p.v_scales.values();
  const int64_t dim = p.heads.head_dim, heads = p.heads.num_heads;
  const bool scaled = p.dtype == DType::fp8;
  Result result{std::vector<float>(p.num_rows * heads * dim, 55.0f),
                std::vector<float>(p.num_rows * heads, 55.0f)};
  for (const AttentionItem& item : p.items) {
    std::vector<int64_t> positions, slots;
    for (int64_t r = item.first_run; r < item.first_run + item.num_runs; ++r)
      for (int64_t key = 0; key < p.runs[r].num_keys; ++key) {
        positions.push_back(p.runs[r].position + key * p.runs[r].stride);
        slots.push_back(p.runs[r].offset / dim + key);
      }
    for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row)
      for (int64_t head = 0; head < heads; ++head) {
        const int64_t first = head / (heads / p.heads.num_kv_heads) * p.num_keys;
        const int64_t query = p.query_positions[row];
        double sum = 0;
        std::vector<double> values(dim);
        for (size_t i = 0; i < positions.size(); ++i) {
          if (positions[i] > query) continue;
          const int64_t window = p.window.tokens;
          if (p.window.chunked() ? positions[i] / window != query / window
                                 : window > 0 && positions[i] <= query - window)
            continue;
          const int64_t key = first + slots[i];
          double score = 0;
          for (int64_t d = 0; d < dim; ++d)
            score += double{q[(row * heads + head) * dim + d]} * k[key * dim + d];
          if (scaled) score *= k_scales[key];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
          sum += weight;
          for (int64_t d = 0; d < dim; ++d)
            values[d] += weight * v[key * dim + d] * (scaled ? double{v_scales[key]} : 1.0);
        }
        for (int64_t d = 0; d < dim; ++d)
          result.out[(row * heads + head) * dim + d] =
              sum == 0 ? 0.0f : static_cast<float>(values[d] / sum);
        result.lse[row * heads + head] = sum == 0 ? empty_lse : static_cast<float>(std::log(sum));
      }
  }
  return result;
}

/// Whole prompts, generated tokens dealt in turn, fragments of one slot, empty runs; next to each
/// other in the cache or not; rows that see all, some or nothing.
TEST_P(Attention, OfRandomRunsIsThatOfTheirPositions) {
  std::mt19937_64 random(5);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const Heads shapes[] = {{2, 1, 16}, {4, 2, 64}, {3, 1, 128}, {2, 2, 20}};
  for (int round = 0; round < 12; ++round) {
    const int64_t rows = draw(0, 2) == 0 ? draw(20, 40) : draw(1, 3);
    Problem p(shapes[round % 4], rows, 600, dtype_);
    p.window = draw(0, 2) == 0 ? draw(1, 400) : 0;
    if (p.window && round % 2 == 0) p.window = Window::chunks_of(p.window.tokens);
    p.row_invariant = draw(0, 1) == 0 ? RowInvariant::yes : RowInvariant::no;
    p.items.clear(), p.runs.clear();
    int64_t slot = 0, next_row = 0;
    for (int64_t items = draw(1, 2); items > 0; --items) {
      const auto first_run = static_cast<int64_t>(p.runs.size());
      const bool fragments = draw(0, 1) == 0;
      for (int64_t runs = fragments ? 90 : 5; runs > 0; --runs) {
        const int64_t count = fragments ? draw(0, 3) : draw(0, 90);
        if (slot + count + 2 > p.num_keys) break;
        p.runs.push_back({slot * p.heads.head_dim, p.num_keys * p.heads.head_dim, count,
                          draw(0, 700), draw(0, 1) == 0 ? 1 : draw(2, 8)});
        slot += count + (draw(0, 3) == 0 ? draw(1, 2) : 0);
      }
      const int64_t count = items == 1 ? rows - next_row : rows / 2;
      p.items.push_back(
          {next_row, count, first_run, static_cast<int64_t>(p.runs.size()) - first_run});
      next_row += count;
    }
    for (int64_t& position : p.query_positions) position = draw(-1, 1500);
    SCOPED_TRACE(testing::Message() << "round " << round);
    const Result actual = attend(p, device_), expected = by_plain_loops(p);
    const double tolerance = 4e-6 + 12 * device_.rounding(dtype_);
    EXPECT_TRUE(all_close(actual.out, expected.out, tolerance));
    EXPECT_TRUE(all_close(actual.lse, expected.lse, tolerance, 0x1p-22));
  }
}

/// Long contexts of few rows, whose keys are divided among blocks, and short ones.
TEST_P(Attention, WritesANarrowTypeRoundedOnce) {
  for (const DType narrow : {DType::bf16, DType::fp16})
    for (const Heads shape : {Heads{4, 2, 64}, Heads{3, 1, 20}})
      for (const int64_t rows : {1, 30})
        for (const int64_t keys : {40, 1100}) {
          Problem p(shape, rows, keys, dtype_);
          const auto elements = rows * shape.num_heads * shape.head_dim;
          Tensor out({rows, shape.num_heads, shape.head_dim}, narrow,
                     std::vector<float>(elements, -7.0f));
          Tensor lse = Tensor::filled({rows, shape.num_heads}, -7.0f);
          const AttentionArgs args = args_of(p, out, lse);
          if (!device_.backend->gains_by_fewer_ops()) {
            EXPECT_THROW(device_.backend->attention(args, device_.stream), Unsupported);
            continue;
          }
          device_.backend->attention(args, device_.stream);
          const Result wide = attend(p, device_);
          EXPECT_EQ(out.values(), Tensor({elements}, narrow, wide.out).values()) << keys << " keys";
          EXPECT_EQ(lse.values(), wide.lse);
        }
}

TEST_P(Attention, KeepsItemsApart) {
  Problem p({3, 1, 16}, 10, 200, dtype_);
  p.runs.clear();
  p.add_keys(150, 50), p.add_keys(0, 20), p.add_keys(20, 130);
  p.items = {{6, 4, 1, 2}, {0, 1, 0, 1}, {1, 5, 0, 1}};
  expect_equal_to_reference(p, device_);
}

TEST_P(Attention, OfHugeScoresStaysFinite) {
  for (const int64_t rows : {1, 60}) {
    Problem p({2, 1, 16}, rows, 150, dtype_, 1000.0f);
    const Result result = attend(p, device_);
    EXPECT_GT(*std::max_element(result.lse.begin(), result.lse.end()), 1000.0f);
    expect_equal_to_reference(p, device_, 1000);
  }
}

TEST_P(Attention, NaNIsNotTakenForAnEmptyRow) {
  for (const int64_t keys : {3, 150, 5000}) {
    Problem p({2, 1, 8}, 1, keys, dtype_);
    p.q = Tensor::filled({1, 2, 8}, NAN);
    const Result result = attend(p, device_);
    EXPECT_TRUE(std::isnan(result.out[0])) << keys << " keys";
    EXPECT_TRUE(std::isnan(result.lse[1])) << keys << " keys";
  }
}

TEST_P(Attention, PartsOfTheKeysMergeToTheWhole) {
  Problem p({4, 2, 16}, 50, 300, dtype_);
  const Result whole = attend(p, device_);
  Tensor out = Tensor::filled({50, 4, 16}, 0.0f), lse = Tensor::filled({50, 4}, empty_lse);
  const std::vector<int64_t> bounds = {0, 7, 7, 131, 290, 300};
  for (const size_t part : {3, 0, 4, 1, 2}) {
    p.cut_runs({bounds[part], bounds[part + 1]});
    const Result result = attend(p, device_);
    Tensor part_out({50, 4, 16}, DType::fp32, result.out);
    Tensor part_lse({50, 4}, DType::fp32, result.lse);
    device_.backend->merge({part_out.view(), part_lse.view(), {}, out.view(), lse.view()},
                           device_.stream);
  }
  EXPECT_TRUE(all_close(out.values(), whole.out, 4e-6 + device_.rounding(dtype_)));
  EXPECT_TRUE(all_close(lse.values(), whole.lse, 4e-6));
}

std::vector<float> row_values(const std::vector<float>& values, int64_t row, int64_t num_rows) {
  const auto width = static_cast<int64_t>(values.size()) / num_rows;
  return {values.begin() + row * width, values.begin() + (row + 1) * width};
}

/// Bits of a row's output and log-sum-exp.
std::vector<uint32_t> bits_of_row(const Result& result, int64_t row, int64_t num_rows) {
  std::vector<uint32_t> bits;
  for (const std::vector<float>* values : {&result.out, &result.lse})
    for (const float value : row_values(*values, row, num_rows))
      bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

PECIA_OP_TEST_OF(AttentionRowInvariant, kv_types);

/// One row against what it sees and nothing else, by one thread; and as one of many rows, of runs
/// that end in the midst of tiles, beside another item.
TEST_P(AttentionRowInvariant, GivesARowTheSameBitsInEveryCall) {
  // Enough keys for a split between threads or blocks, more rows than a tile has, groups of 1, 3
  // and 4; on the CUDA backend, heads of both kernels.
  const bool cuda = device_.backend->name() == "cuda";
  const int64_t rows = cuda ? 40 : 150, step = cuda ? 15 : 30, keys = step * rows;
  const std::string& name = std::get<0>(GetParam());
  if (name == "reference") return;  // slow, and plain loops over each row
  Device alone_on = make_device(name == "cpu_3_threads" ? "cpu" : name);
  for (const Heads shape : {Heads{2, 2, 16}, Heads{3, 1, 64}, Heads{8, 2, 20}, Heads{2, 1, 96}})
    for (const int64_t window : {int64_t{0}, 10 * step}) {
      Problem together(shape, rows, keys, dtype_);
      together.window = window;
      together.row_invariant = RowInvariant::yes;
      for (int64_t row = 0; row < rows; ++row)  // the first sees one key, the last nearly all
        together.query_positions[row] = step * row;
      together.cut_runs({0, 1, 130, 131, 131, 200, keys});
      const int64_t others = rows / 3, runs = together.items[0].num_runs;
      together.items = {{0, others, 0, runs}, {others, rows - others, 0, runs}};
      const Result all = attend(together, device_);
      for (const int64_t row : {int64_t{0}, int64_t{1}, int64_t{2}, others, rows - 2, rows - 1}) {
        Problem alone = together;
        alone.num_rows = 1;
        alone.q = Tensor({1, shape.num_heads, shape.head_dim}, DType::fp32,
                         row_values(together.q.values(), row, rows));
        alone.query_positions = {step * row};
        alone.cut_runs({0, step * row + 1});  // nothing but what it sees
        EXPECT_EQ(bits_of_row(attend(alone, alone_on), 0, 1), bits_of_row(all, row, rows))
            << "row " << row << ", window " << window << ", " << shape.num_heads << " heads of "
            << shape.head_dim;
      }
    }
}

TEST_P(AttentionRowInvariant, AgreesWithTheReference) {
  for (const Heads shape : {Heads{4, 2, 20}, Heads{3, 1, 64}, Heads{4, 1, 128}})
    for (const int64_t rows : {1, 6, 30})
      for (const int64_t window : {0, 70}) {
        Problem p(shape, rows, 201, dtype_);
        p.row_invariant = RowInvariant::yes;
        p.window = window;
        p.cut_runs({0, 1, 60, 190, 190, 201});
        expect_equal_to_reference(p, device_);
      }
}

/// The backend's own merging against the op `merge`, bit by bit: four leaves, of which one is empty
/// for all rows and some are for a few.
TEST_P(AttentionRowInvariant, MergesItemsAsTheOpDoes) {
  if (!device_.backend->merges_attention()) return;
  constexpr int leaves = 4;
  for (const int64_t rows : {1, 5, 200}) {
    const Heads shape{6, 2, 20};
    Problem p(shape, rows, 4 * rows + 300, dtype_);
    p.row_invariant = RowInvariant::yes;
    const int64_t last = p.num_keys;
    p.cut_runs({0, 7, 150, last});
    const std::vector<AttentionItem> items = {
        {0, rows, 0, 1}, {0, rows, 1, 1}, {0, rows, 2, 0}, {0, rows, 2, 1}};
    p.items = items;
    p.merged = leaves;
    const Result whole = attend(p, device_);

    p.merged = 1;
    std::vector<Tensor> outs, lses;
    for (const AttentionItem& item : items) {
      p.items = {item};
      const Result part = attend(p, device_);
      outs.emplace_back(std::vector<int64_t>{rows, 6, 20}, DType::fp32, part.out);
      lses.emplace_back(std::vector<int64_t>{rows, 6}, DType::fp32, part.lse);
    }
    for (const auto& [into, from] : {std::pair(0, 1), std::pair(2, 3), std::pair(0, 2)})
      device_.backend->merge(
          {outs[from].view(), lses[from].view(), {}, outs[into].view(), lses[into].view()},
          device_.stream);
    EXPECT_EQ(bits_of_row(whole, 0, 1), bits_of_row({outs[0].values(), lses[0].values()}, 0, 1))
        << rows << " rows";
  }
}

/// What the tensor cores' kernel cannot copy is not left to the other one, whose bits are others.
TEST_P(AttentionRowInvariant, RefusesKeysThatAreNotAligned) {
  if (std::get<0>(GetParam()) != "emulated" || dtype_ == DType::fp32) return;
  Problem p({1, 1, 64}, 1, 10, dtype_);
  p.skewed_bytes = 2;
  p.runs[0].num_keys = 9;
  attend(p, device_);
  p.row_invariant = RowInvariant::yes;
  EXPECT_THROW(attend(p, device_), InvalidArgument);
}

TEST(AttentionThreads, DoNotChangeTheResult) {
  Device one = make_device("cpu"), three = make_device("cpu_3_threads");
  for (const int64_t rows : {1, 140}) {
    Problem p({3, 1, 16}, rows, 4500, DType::bf16);
    const Result a = attend(p, one), b = attend(p, three);
    EXPECT_EQ(a.out, b.out);
    EXPECT_EQ(a.lse, b.lse);
  }
}

constexpr DType fp8_alone[] = {DType::fp8};
PECIA_OP_TEST_OF(AttentionOfFp8, fp8_alone);

TEST_P(AttentionOfFp8, TakesCodesTimesTheirScales) {
  // Two heads, two keys; scores are 0 and 2 · 0.5 · log 3, weights 1/4 and 3/4. Where weights are
  // rounded, 1/3 of the other one is.
  Problem p({2, 2, 1}, 1, 2, DType::fp8);
  const float log3 = std::log(3.0f);
  p.q = Tensor::filled({1, 2, 1}, 1);
  p.set_keys({0, 2, 4, 0}, {1, 2, 3, 4});
  p.k_scales = Tensor({2, 2}, DType::fp32, {9, 0.5f * log3, 0.25f * log3, 9});
  p.v_scales = Tensor({2, 2}, DType::fp32, {8, 2, 4, 3});
  const Result result = attend(p, device_);
  EXPECT_TRUE(all_close(result.out, std::vector<float>{8 / 4.0f + 3, 9 + 12 / 4.0f},
                        2e-6 + 12 / 4.0 * device_.rounding(DType::fp8)));
  EXPECT_TRUE(all_close(result.lse, std::vector<float>(2, std::log(4.0f)), 1e-6));
}

/// Stores fp32 keys and values in the cache of a problem of fp8.
void store_keys(Problem& p, Tensor k, Tensor v, Device& device) {
  std::vector<int64_t> slots(p.num_keys);
  std::iota(slots.begin(), slots.end(), 0);
  for (auto [x, codes, scales] : {std::tuple{&k, &p.k, &p.k_scales}, {&v, &p.v, &p.v_scales}})
    device.backend->kv_store({x->view(), slots, codes->view(), scales->view()}, device.stream);
}

/// One KV head, so that rows of keys are as kv_store wants them and as a cache has them.
TEST_P(AttentionOfFp8, IsAsNearToUnroundedKeysAsFp8Is) {
  Device oracle = make_device("reference");
  for (const int64_t head_dim : {16, 64, 128}) {
    constexpr int64_t keys = 90;
    Problem exact({2, 1, head_dim}, 20, keys, DType::fp32), p({2, 1, head_dim}, 20, keys, dtype_);
    store_keys(p, Tensor({keys, 1, head_dim}, DType::fp32, exact.k.values()),
               Tensor({keys, 1, head_dim}, DType::fp32, exact.v.values()), device_);
    const Result actual = attend(p, device_), expected = attend(exact, oracle);

    // A code is off by up to 2⁻⁴ of itself, or by half of the least step, 2⁻⁹.
    const std::vector<float> q = exact.q.values(), k = exact.k.values();
    const std::vector<float> k_scales = p.k_scales.values(), v_scales = p.v_scales.values();
    double score_error = 0;
    for (size_t row = 0; row < q.size(); row += head_dim)
      for (size_t key = 0; key < keys; ++key) {
        double error = 0;
        for (int64_t i = 0; i < head_dim; ++i)
          error += std::fabs(q[row + i]) *
                   std::max(0x1p-4 * std::fabs(k[key * head_dim + i]), 0x1p-10 * k_scales[key]);
        score_error = std::max(score_error, error / std::sqrt(static_cast<double>(head_dim)));
      }
    const double rounding = 8 * device_.rounding(dtype_) + 4e-6;
    const double greatest_value = 448 * *std::max_element(v_scales.begin(), v_scales.end());
    EXPECT_TRUE(all_close(actual.lse, expected.lse, score_error + rounding));
    EXPECT_TRUE(
        all_close(actual.out, expected.out,
                  (std::expm1(2 * score_error) + std::exp(2 * score_error) * 0x1p-4 + rounding) *
                      greatest_value));
  }
}

TEST_P(AttentionOfFp8, ShowsNaNAndInfinityOfAKeyOrAValue) {
  for (const float visible : {NAN, INFINITY, -INFINITY})
    for (const bool in_values : {false, true})
      for (const int64_t head_dim : {8, 64}) {
        Problem exact({1, 1, head_dim}, 1, 20, DType::fp32), p({1, 1, head_dim}, 1, 20, dtype_);
        std::vector<float> k = exact.k.values(), v = exact.v.values();
        (in_values ? v : k)[7 * head_dim + 3] = visible;
        store_keys(p, Tensor({20, 1, head_dim}, DType::fp32, k),
                   Tensor({20, 1, head_dim}, DType::fp32, v), device_);
        const Result result = attend(p, device_);
        EXPECT_TRUE(std::isnan(result.out[0])) << visible << ", head_dim " << head_dim;
        EXPECT_EQ(std::isnan(result.lse[0]), !in_values) << visible << ", head_dim " << head_dim;
      }
}

TEST_P(AttentionOfFp8, RefusesKeysWithoutScales) {
  Problem p({1, 1, 8}, 1, 4, dtype_);
  p.runs[0].head_stride += 1;
  EXPECT_THROW(attend(p, device_), InvalidArgument);
  p.cut_runs({0, 4});
  p.runs[0].offset += 1;
  EXPECT_THROW(attend(p, device_), InvalidArgument);
  p.cut_runs({0, 4});
  p.hides_scales = true;
  EXPECT_THROW(attend(p, device_), InvalidArgument);
}

TEST_P(Attention, RefusesContradictions) {
  Problem p({3, 1, 8}, 2, 4, dtype_);
  p.items = {{1, 2, 0, 1}};
  EXPECT_THROW(attend(p, device_), InvalidArgument);
  p.items = {{0, 2, 0, 2}};
  EXPECT_THROW(attend(p, device_), InvalidArgument);
  p.items = {{0, 2, 0, 1}};
  p.heads.num_kv_heads = 2;
  EXPECT_THROW(attend(p, device_), InvalidArgument);
  p.heads.num_kv_heads = 1;
  p.runs[0].stride = 0;
  EXPECT_THROW(attend(p, device_), InvalidArgument);
  p.cut_runs({0, 4});
  p.query_positions.pop_back();
  EXPECT_THROW(attend(p, device_), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
