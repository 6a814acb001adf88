#include <gtest/gtest.h>

#include "lib/core/error.hpp"
#include "lib/runtime/resources.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/temp_folder.hpp"
#include "tests/support/shards.hpp"

namespace pecia::runtime {
namespace {

Resources grid(int dp, std::optional<int> cp, int num_ranks) {
  Job job;
  job.parallel.dp = dp;
  job.parallel.cp = cp;
  Resources resources;
  resolve_grid(job, num_ranks, resources);
  return resources;
}

TEST(Grid, GivesARingWhatReplicasLeave) {
  EXPECT_EQ(grid(1, {}, 6).cp, 6);
  EXPECT_EQ(grid(3, {}, 6).cp, 2);
  EXPECT_EQ(grid(3, 2, 6).dp, 3);
}

TEST(Grid, IsRefusedWhenItIsNotAllRanks) {
  test::expect_error<InputError>([] { grid(4, {}, 6); }, {"dp 4", "cp 1", "6"});
  test::expect_error<InputError>([] { grid(1, 4, 6); }, {"dp 1", "cp 4", "start 4 ranks"});
}

TEST(DtypeOf, KnowsTheWordsThatHaveATypeHere) {
  EXPECT_EQ(dtype_of(Precision::fp32, "kv.dtype"), DType::fp32);
  EXPECT_EQ(dtype_of(Precision::bf16, "kv.dtype"), DType::bf16);
  EXPECT_EQ(dtype_of(Precision::fp16, "kv.dtype"), DType::fp16);
  test::expect_error<Unsupported>([] { dtype_of(Precision::fp8, "kv.dtype"); }, {"kv.dtype fp8"});
}

model::ModelConfig small_model() {
  model::ModelConfig config;
  config.vocab = 100, config.max_positions = 1000;
  config.hidden = 64, config.ffn = 128, config.layers = 3;
  config.num_heads = 4, config.num_kv_heads = 2, config.head_dim = 16;
  return config;
}

TEST(BatchTokens, GrowWithTheRing) {
  Job job;
  const int64_t alone = resolve_batch_tokens(job, small_model(), 1);
  EXPECT_GE(alone, 256);
  EXPECT_LE(alone, 4096);
  EXPECT_EQ(alone % 256, 0);
  EXPECT_EQ(resolve_batch_tokens(job, small_model(), 4), 4 * alone);
  auto wide = small_model();
  wide.hidden = 16384, wide.ffn = 65536;
  EXPECT_LT(resolve_batch_tokens(job, wide, 1), alone);
  EXPECT_GE(resolve_batch_tokens(job, wide, 1), 256);
  job.reproducible = Reproducible::layout;  // the same cuts on any number of ranks
  EXPECT_EQ(resolve_batch_tokens(job, small_model(), 4), alone);
  job.batch.max_batch_tokens = 17;
  EXPECT_EQ(resolve_batch_tokens(job, small_model(), 4), 17);
}

TEST(KvTokens, AreWhatTheMemoryHolds) {
  Job job;
  job.kv.memory = 1 << 20;
  const auto comm = comm::make_null_communicator();
  Resources resources;
  test::TempFolder folder;
  test::ShardContent shard;
  shard.requests = {{"a", {{std::vector<int32_t>(900, 1)}}},
                    {"b", {{std::vector<int32_t>(100, 1)}}}};
  test::write_shard(folder / "a.h5", shard);
  job.model.path = folder.path();
  job.input = {folder / "a.h5"};
  job.generation.max_new_tokens = 10;
  const auto config = small_model();
  const Inputs inputs(job, config);
  const auto tokens = [&](DType dtype, int64_t max_sequences) {
    resources.kv_dtype = dtype;
    resources.max_sequences = max_sequences;
    resources.max_batch_tokens = 4096;
    return resolve_kv_tokens(job, config, &inputs, resources, *comm);
  };
  // 3 layers × K and V × 2 heads × 16 × 4 bytes = 768 a token.
  EXPECT_GE(tokens(DType::fp32, 8), 900 + 100 + 20);
  EXPECT_LT(tokens(DType::fp32, 8), (1 << 20) / 768) << "no more than the requests can use";
  EXPECT_GE(tokens(DType::fp32, 1), 910);
  EXPECT_LT(tokens(DType::fp32, 1), 1010) << "one request at a time";
  job.kv.memory = 768 * 500 + 383;
  EXPECT_EQ(tokens(DType::fp32, 8), 500);
  EXPECT_EQ(tokens(DType::bf16, 8), 1000);
  job.kv.memory = 767;
  test::expect_error<InputError>([&] { tokens(DType::fp32, 8); }, {"kv.memory", "767", "768"});
  job.kv.memory.reset();
  EXPECT_GE(tokens(DType::fp32, 8), 900 + 100 + 20) << "of what is free on this machine";
}

}  // namespace
}  // namespace pecia::runtime
