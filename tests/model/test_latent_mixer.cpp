// SPDX-License-Identifier: Apache-2.0
/// Latent attention, absorbed and expanded, against its definition: keys and values of every head,
/// made of the latents, in double.

#include <gtest/gtest.h>

#include <cmath>

#include "lib/model/layers/latent_mixer.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/model/checkpoint_file.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::model {
namespace {

using Numbers = std::vector<double>;

constexpr int64_t hidden = 12, heads = 3, rows = 9;
constexpr LatentConfig sizes{5, 6, 4, 2, 3};

ModelConfig config_of(int64_t q_rank, kernels::RopePairs pairs) {
  ModelConfig config;
  config.family = Family::deepseek_v3;
  config.vocab = 3;
  config.hidden = hidden;
  config.ffn = 4;
  config.layers = 1;
  config.pattern.resize(1);
  config.num_heads = heads;
  config.num_kv_heads = 1;
  config.latent = sizes;
  config.latent->q_rank = q_rank;
  config.head_dim = sizes.key_dim();
  config.attention_scale = 0.3f;
  config.rope.rotary_dim = sizes.rope_dim;
  config.rope.pairs = pairs;
  config.rms_norm_eps = 0.5;  // which norms of latents do not have
  return config;
}

/// Random tensors of one layer.
test::CheckpointFile file_of(const ModelConfig& config) {
  test::CheckpointFile file;
  uint64_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    file.add(name + ".weight", std::move(shape));
    auto& values = file.tensors[name + ".weight"].values;
    values = test::random_floats(std::ssize(values), ++seed);
  };
  add("model.embed_tokens", {3, hidden}), add("lm_head", {3, hidden}), add("model.norm", {hidden});
  const std::string layer = "model.layers.0.";
  add(layer + "input_layernorm", {hidden}), add(layer + "post_attention_layernorm", {hidden});
  add(layer + "mlp.gate_proj", {4, hidden}), add(layer + "mlp.up_proj", {4, hidden});
  add(layer + "mlp.down_proj", {hidden, 4});
  const int64_t queries = heads * sizes.query_dim();
  if (const int64_t rank = config.latent->q_rank; rank > 0) {
    add(layer + "self_attn.q_a_proj", {rank, hidden});
    add(layer + "self_attn.q_a_layernorm", {rank});
    add(layer + "self_attn.q_b_proj", {queries, rank});
  } else {
    add(layer + "self_attn.q_proj", {queries, hidden});
  }
  add(layer + "self_attn.kv_a_proj_with_mqa", {sizes.key_dim(), hidden});
  add(layer + "self_attn.kv_a_layernorm", {sizes.kv_rank});
  add(layer + "self_attn.kv_b_proj", {heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank});
  add(layer + "self_attn.o_proj", {hidden, heads * sizes.value_dim});
  return file;
}

/// One number for each row and pair; there is one pair.
struct Turns {
  std::vector<float> cos = test::random_floats(rows, 91), sin = test::random_floats(rows, 92),
                     scale = test::random_floats(rows, 93);
};

/// The definition.
class Expanded {
 public:
  Expanded(const ModelConfig& config, const test::CheckpointFile& file, const std::vector<float>& x,
           const Turns& turns)
      : config_(config), file_(file), x_(x), turns_(turns) {}

  Numbers outputs() {
    for (int64_t row = 0; row < rows; ++row) add_row(row);
    Numbers all;
    for (int64_t row = 0; row < rows; ++row) {
      const Numbers of_row = output(row);
      all.insert(all.end(), of_row.begin(), of_row.end());
    }
    return all;
  }

 private:
  const std::vector<float>& of(const std::string& name) const {
    return file_.tensors.at("model.layers.0.self_attn." + name + ".weight").values;
  }
  Numbers multiply(const std::string& name, const Numbers& x) const {
    const std::vector<float>& w = of(name);
    Numbers y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    return y;
  }
  Numbers normed(const std::string& name, Numbers x) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double by = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    for (size_t i = 0; i < x.size(); ++i) x[i] *= by * of(name)[i];
    return x;
  }
  /// A single pair: halves and neighbours are the same.
  void turn(double* pair, int64_t row) const {
    const double a = pair[0], b = pair[1], cos = turns_.cos[row], sin = turns_.sin[row];
    pair[0] = a * cos - b * sin, pair[1] = b * cos + a * sin;
  }

  void add_row(int64_t row) {
    const Numbers x(x_.begin() + row * hidden, x_.begin() + (row + 1) * hidden);
    Numbers q = config_.latent->q_rank > 0
                    ? multiply("q_b_proj", normed("q_a_layernorm", multiply("q_a_proj", x)))
                    : multiply("q_proj", x);
    for (int64_t h = 0; h < heads; ++h) turn(&q[h * sizes.query_dim() + sizes.nope_dim], row);
    for (double& value : q) value *= turns_.scale[row];
    queries_.push_back(std::move(q));
    Numbers kv = multiply("kv_a_proj_with_mqa", x);
    turn(&kv[sizes.kv_rank], row);
    const Numbers latents = normed("kv_a_layernorm", {kv.begin(), kv.begin() + sizes.kv_rank});
    const Numbers up = multiply("kv_b_proj", latents);
    Numbers keys, values;
    for (int64_t h = 0; h < heads; ++h) {
      const auto head = up.begin() + h * (sizes.nope_dim + sizes.value_dim);
      keys.insert(keys.end(), head, head + sizes.nope_dim);
      keys.insert(keys.end(), kv.begin() + sizes.kv_rank, kv.end());
      values.insert(values.end(), head + sizes.nope_dim, head + sizes.nope_dim + sizes.value_dim);
    }
    keys_.push_back(std::move(keys)), values_.push_back(std::move(values));
  }

  Numbers output(int64_t row) const {
    Numbers all(heads * sizes.value_dim);
    for (int64_t h = 0; h < heads; ++h) {
      double sum = 0;
      for (int64_t key = 0; key <= row; ++key) {
        double score = 0;
        for (int64_t i = h * sizes.query_dim(); i < (h + 1) * sizes.query_dim(); ++i)
          score += queries_[row][i] * keys_[key][i];
        const double weight = std::exp(score * *config_.attention_scale);
        sum += weight;
        for (int64_t i = 0; i < sizes.value_dim; ++i)
          all[h * sizes.value_dim + i] += weight * values_[key][h * sizes.value_dim + i];
      }
      for (int64_t i = 0; i < sizes.value_dim; ++i) all[h * sizes.value_dim + i] /= sum;
    }
    return multiply("o_proj", all);
  }

  const ModelConfig& config_;
  const test::CheckpointFile& file_;
  const std::vector<float>& x_;
  const Turns& turns_;
  std::vector<Numbers> queries_, keys_, values_;  ///< by row, all heads
};

struct LatentMixerTest
    : testing::TestWithParam<
          std::tuple<int64_t, kernels::RopePairs, kernels::RowInvariant, DType, std::string>> {};

/// "cpu", whose attention goes on with results, "reference", whose results are merged, or "emulated",
/// the CUDA backend's code.
std::unique_ptr<kernels::Backend> make_backend(const std::string& name, device::Device& device) {
  if (name == "emulated") return test::make_emulated_backend(device);
  return name == "cpu" ? kernels::make_cpu_backend() : kernels::make_reference_backend();
}

/// A prompt's chunk, which is expanded, then one row and the rest, which see rows before them in the
/// cache and are absorbed. Keys are expanded two at a time.
TEST_P(LatentMixerTest, EqualsKeysAndValuesOfEveryHead) {
  const auto [q_rank, pairs, row_invariant, cached, backend] = GetParam();
  const ModelConfig config = config_of(q_rank, pairs);
  const test::CheckpointFile file = file_of(config);
  test::TempFolder folder;
  file.write(folder);
  const Weights weights(config, io::Checkpoint(folder.path()), {});
  std::vector<float> x = test::random_floats(rows * hidden, 77);
  Turns turns;

  const auto alone = comm::make_null_communicator();
  const auto groups = attention::make_replica_groups(*alone, 1, 1);
  auto device = device::make_host_device(1);
  auto ops = make_backend(backend, *device);
  ASSERT_EQ(ops->continues_attention(), backend == "cpu");
  test::OwnedCompute compute(std::move(device), std::move(ops));
  attention::KvCache cache({1, 1, config.head_dim, cached, config.values_in_keys()}, rows,
                           *compute.device);
  const parallel::LatentHead head{sizes.kv_rank, sizes.nope_dim, sizes.rope_dim, sizes.value_dim};
  attention::Attention attention(groups, {heads, 1, config.attention_scale, {}, head}, {0}, compute,
                                 cache);
  Products products(config, weights, compute, row_invariant, 1);
  TensorParallel tensor(groups, compute, row_invariant);
  const int64_t two_keys = 2 * 2 * heads * sizes.query_dim() * size_of(cached);
  LatentMixer mixer(config, compute, products, tensor, two_keys);
  attention.ledger().add(0, std::vector<int64_t>{rows}, std::nullopt);
  std::vector<float> found(rows * hidden);
  int64_t first = 0;
  for (const int64_t count : {6, 1, 2}) {
    const auto part = [&](std::vector<float>& all, int64_t width) {
      return TensorView(all.data() + first * width, DType::fp32, {count, width});
    };
    attention.begin_pass({{parallel::team_of_all(1), {{0, first, count}}}}, first);
    EXPECT_EQ(attention.expands_latents(), first == 0);
    tensor.begin_pass(parallel::Sharding::base, count);
    const RotationTables keys{part(turns.cos, 1), part(turns.sin, 1)};
    RotationTables queries = keys;
    queries.scale = part(turns.scale, 1).reshape({count});
    mixer.begin(0, weights.layers[0], count, attention);
    mixer.project(0, {part(x, hidden), keys, queries}, attention);
    mixer.mix(0, attention);
    mixer.project_output(0, part(found, hidden), {});
    tensor.wait_sum(0);
    first += count;
  }

  const Numbers wanted = Expanded(config, file, x, turns).outputs();
  const std::vector<float> expected(wanted.begin(), wanted.end());
  // Sums of up to 12 products of numbers up to 30, in fp32; or of latents that were rounded to 2⁻⁹ of
  // themselves, and keys and values once more.
  EXPECT_TRUE(test::all_close(found, expected, cached == DType::fp32 ? 1e-4 : 30.0 / 256));
}

INSTANTIATE_TEST_SUITE_P(
    Forms, LatentMixerTest,
    testing::Combine(testing::Values(0, 5),
                     testing::Values(kernels::RopePairs::halves, kernels::RopePairs::interleaved),
                     testing::Values(kernels::RowInvariant::no, kernels::RowInvariant::yes),
                     testing::Values(DType::fp32, DType::bf16),
                     testing::Values("cpu", "reference", "emulated")));

/// Rank r of two has head r or heads 2r and 2r + 1, each K transposed.
TEST(LatentWeights, OfAPartAreThoseOfItsHeads) {
  ModelConfig config = config_of(5, kernels::RopePairs::halves);
  config.num_heads = 4;
  test::CheckpointFile file = file_of(config);
  const std::string attention = "model.layers.0.self_attn.";
  const int64_t of_head = sizes.nope_dim + sizes.value_dim;
  file.add(attention + "q_b_proj.weight", {4 * sizes.query_dim(), 5});
  file.add(attention + "o_proj.weight", {hidden, 4 * sizes.value_dim});
  file.add(attention + "kv_b_proj.weight", {4 * of_head, sizes.kv_rank});
  test::TempFolder folder;
  file.write(folder);
  const Weights part(config, io::Checkpoint(folder.path()), {}, {2, 1});
  const LatentWeights& latent = *part.layers[0].attention.latent;
  const std::vector<float>& all = file.tensors.at(attention + "kv_b_proj.weight").values;
  ASSERT_EQ(latent.key_up.out(), 2 * sizes.kv_rank);
  ASSERT_EQ(latent.value_up.out(), 2 * sizes.value_dim);
  ASSERT_EQ(latent.head_keys.out(), 2 * sizes.nope_dim);
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t r = 0; r < sizes.kv_rank; ++r) {
      const auto stored = [&](int64_t row) {
        return all[((2 + head) * of_head + row) * sizes.kv_rank + r];
      };
      const TensorView &keys = latent.key_up.parts[0].weight,
                       &values = latent.value_up.parts[0].weight,
                       &own_keys = latent.head_keys.parts[0].weight;
      for (int64_t i = 0; i < sizes.nope_dim; ++i) {
        EXPECT_EQ(static_cast<float*>(keys.row(head * sizes.kv_rank + r))[i], stored(i));
        EXPECT_EQ(static_cast<float*>(own_keys.row(head * sizes.nope_dim + i))[r], stored(i));
      }
      for (int64_t i = 0; i < sizes.value_dim; ++i)
        EXPECT_EQ(static_cast<float*>(values.row(head * sizes.value_dim + i))[r],
                  stored(sizes.nope_dim + i));
    }
  // What latents are made of is whole on every rank.
  EXPECT_EQ(latent.kv_down.out(), sizes.key_dim());
  EXPECT_EQ(latent.q_down->out(), 5);
  EXPECT_EQ(part.layers[0].attention.q.out(), 2 * sizes.query_dim());
  EXPECT_EQ(part.layers[0].attention.o.in(), 2 * sizes.value_dim);
}

}  // namespace
}  // namespace pecia::model
