// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/error.hpp"
#include "lib/model/layers/model.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::resources {
namespace {

model::ModelConfig small_model() {
  model::ModelConfig config;
  config.vocab = 100, config.max_positions = 1000;
  config.hidden = 64, config.ffn = 128, config.layers = 3;
  config.num_heads = 4, config.num_kv_heads = 2, config.head_dim = 16;
  return config;
}

/// `settings` are keys of the job's section parallel, with values; `others` are full keys.
Resources resolved(std::vector<std::string> settings, int num_ranks,
                   const std::vector<std::string>& others = {}) {
  for (std::string& setting : settings) setting.insert(0, "parallel.");
  settings.insert(settings.end(), others.begin(), others.end());
  const job::Job job =
      job::parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", settings);
  Resources resources;
  resolve_grid(job, small_model(), num_ranks, resources);
  return resources;
}

/// Before anything is read: levels send heads.
TEST(Grid, IsRefusedWhereLatentAttentionLacksIt) {
  const auto resolve = [](const std::vector<std::string>& settings, bool gpus) {
    model::ModelConfig config = small_model();
    config.family = model::Family::deepseek_v3;
    config.latent = {0, 12, 8, 4, 8};
    config.num_kv_heads = 1, config.head_dim = 16;
    Resources resources;
    resources.gpus = gpus;
    const job::Job job =
        job::parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", settings);
    resolve_grid(job, config, 2, resources);
  };
  EXPECT_NO_THROW(resolve({}, false));
  EXPECT_NO_THROW(resolve({}, true));
  test::expect_error<Unsupported>([&] { resolve({"attention.sparse=csa"}, false); },
                                  {"attention.sparse: csa", "latent attention", "leave"});
}

/// Before anything is read: levels are for layers that are alike.
TEST(Grid, IsRefusedWhereLayersWithHeadsOfTheirOwnLackIt) {
  const auto resolve = [](const std::vector<std::string>& settings, bool gpus) {
    model::ModelConfig config = small_model();
    config.family = model::Family::gemma4;
    config.pattern.resize(config.layers);
    config.full_heads = {2, 32};
    config.norms_values = true;
    Resources resources;
    resources.gpus = gpus;
    const job::Job job =
        job::parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", settings);
    resolve_grid(job, config, 2, resources);
  };
  EXPECT_NO_THROW(resolve({}, false));
  EXPECT_NO_THROW(resolve({}, true));
  test::expect_error<Unsupported>([&] { resolve({"attention.sparse=csa"}, false); },
                                  {"attention.sparse: csa", "gemma4_text", "leave"});
}

/// What is open in a job is refused where it is settled.
TEST(Grid, OpensStages) {
  const std::vector<std::string> ones{"dp=1", "cp=1", "sp=1", "tp=1", "pp=auto"};
  EXPECT_EQ(resolved(ones, 2).pp, 2);
  EXPECT_EQ(resolved({"pp=auto"}, 2).pp, 1);
  test::expect_error<Unsupported>([&] { resolved(ones, 2, {"batch.objective=ttft"}); },
                                  {"parallel.pp above 1", "use objective: throughput"});
}

/// Before anything is read: shares go with the layers and heads of the model.
TEST(Grid, TakesSharesOfLayersAndHeads) {
  const auto resolve = [](const std::string& drop, const std::string& geometry = "disjoint") {
    model::ModelConfig config = small_model();
    config.layers = 4, config.num_kv_heads = 2;
    Resources resources;
    const job::Job job = job::parse_job(
        "model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml",
        {"attention.sparse=csa", "attention.drop=" + drop, "attention.geometry=" + geometry});
    resolve_grid(job, config, 2, resources);
    return *resources.sparse;
  };
  const parallel::SparseSetting found = resolve("{layers: [0, [0.2, 0.6], 0.1, 0]}");
  EXPECT_EQ(found.layer_drops, (parallel::LayerDrops{{0}, {0.2, 0.6}, {0.1}, {0}}));
  EXPECT_NEAR(found.rule.drop, 0.25, 1e-12);
  EXPECT_NO_THROW(resolve("{layers: [0, 0.2, 0.1, 0]}", "nested"));
  EXPECT_TRUE(resolve("0.3").layer_drops.empty());
  test::expect_error<InputError>([&] { resolve("{layers: [0, 0.1, 0]}"); },
                                 {"has 3 shares", "4 layers of attention"});
  test::expect_error<InputError>([&] { resolve("{layers: [0, 0.1, [0.1, 0.2, 0.3], 0]}"); },
                                 {"3 shares for layer 2", "2 KV heads"});
  test::expect_error<InputError>([&] { resolve("{layers: [0, 0.1, 0.1, 0.1]}"); },
                                 {"in layer 3", "give 0 there"});
  test::expect_error<Unsupported>([&] { resolve("{layers: [0, [0.1, 0.2], 0, 0]}", "nested"); },
                                  {"by head", "geometry: nested", "use geometry: disjoint"});
}

TEST(ReservedBytes, AreAFifthAndOnGpusAtMostTwoGib) {
  constexpr int64_t gib = int64_t{1} << 30;
  EXPECT_EQ(reserved_bytes(100 * gib, false), 20 * gib);
  EXPECT_EQ(reserved_bytes(100 * gib, true), 2 * gib);
  EXPECT_EQ(reserved_bytes(5 * gib, true), gib);
  EXPECT_EQ(reserved_bytes(0, true), 0);
}

TEST(Grid, GivesARingWhatTheOthersLeave) {
  EXPECT_EQ(resolved({}, 6).cp, 6);
  EXPECT_EQ(resolved({"dp=3"}, 6).cp, 2);
  EXPECT_EQ(resolved({"dp=3", "cp=2"}, 6).dp, 3);
  const Resources whole = resolved({"dp=2", "sp=2", "tp=2"}, 24);
  EXPECT_EQ(whole.degrees(), (parallel::Degrees{3, 2, 2}));
}

TEST(Grid, IsRefusedWhenItIsNotAllRanks) {
  test::expect_error<InputError>([] { resolved({"dp=4"}, 6); },
                                 {"parallel.dp 4 × cp 1", "6", "start 4 ranks"});
  test::expect_error<InputError>([] { resolved({"cp=4"}, 6); }, {"dp 1 × cp 4", "start 4 ranks"});
  test::expect_error<InputError>(
      [] {
        resolved({"sp=2", "tp=2"}, 6);
      },
      {"cp 1 × sp 2 × tp 2", "divides 6", "start 4 ranks"});
  test::expect_error<InputError>(
      [] {
        resolved({"dp=1048576", "cp=1048576", "sp=1048576", "tp=1048576"}, 6);
      },
      {"dp 1048576 × cp 1048576", "start that many ranks"});
}

TEST(Grid, IsRefusedByTheTable) {
  test::expect_error<InputError>([] { resolved({"sp=3"}, 6); },
                                 {"parallel.sp 3 does not divide the 4 query heads: use sp 2"});
  test::expect_error<InputError>([] { resolved({"prefill=ring"}, 1); },
                                 {"parallel.prefill ring needs cp above 1", "use prefill auto"});
}

TEST(Modes, AreResolvedOnce) {
  const Resources alone = resolved({}, 1);
  EXPECT_EQ(mode_name(alone), "single");
  EXPECT_EQ(alone.reasons.text(), "");
  const Resources ring = resolved({}, 4);
  EXPECT_EQ(mode_name(ring), "ring/auto+broadcast_q");
  EXPECT_NE(ring.reasons.text().find("decode broadcast_q: "), std::string::npos);
  const Resources shifting = resolved({"sp=2", "shift_threshold=7"}, 2);
  EXPECT_EQ(mode_name(shifting), "ulysses+shift");
  EXPECT_EQ(shifting.shift_threshold, 7);
  EXPECT_EQ(mode_name(resolved({"tp=2", "prefill=tp"}, 2)), "tp+tp");
  const Resources said = resolved({"prefill=ring", "ring=pass_kv", "decode=pass_q"}, 2);
  EXPECT_EQ(mode_name(said), "ring/pass_kv+pass_q");
  EXPECT_EQ(said.reasons.text(), "");
}

TEST(Modes, OfTpAloneDependOnTheTokensOfAPass) {
  // 2·64·(4 + 2)·16 + 3·64·128 = 36864 weights over 4·64 − (4 + 2)·16 = 160 of each token: 230.4.
  job::Job job;
  job.parallel.tp = 2;
  Resources resources;
  const auto prefill = [&](int64_t tokens) {
    job.batch.max_batch_tokens = tokens;
    resolve_grid(job, small_model(), 2, resources);
    return resources.prefill;
  };
  EXPECT_EQ(prefill(1), parallel::PrefillMode::tp);
  EXPECT_EQ(prefill(230), parallel::PrefillMode::sp_tp);
  EXPECT_EQ(resources.gather_threshold, std::nullopt);
  EXPECT_EQ(prefill(231), parallel::PrefillMode::ulysses);
  EXPECT_EQ(resources.gather_threshold, 231);
  EXPECT_EQ(mode_name(resources), "ulysses+tp");
  EXPECT_EQ(mode_name(resources, "sp_tp"), "sp_tp+tp") << "a shorter pass";
}

TEST(Levels, CutSequencesByTheRanksOfCpOrOfTpAlone) {
  const std::vector<std::string> csa{"attention.sparse=csa"};
  const auto places = [](const Resources& resources, int ranks) {
    std::vector<comm::RackServerGpu> replica;
    for (int rank = 0; rank < ranks; ++rank) replica.push_back({"rack", "server", rank});
    std::vector<int> found;
    for (const auto& place : resources.level_places(replica)) found.push_back(place.device);
    return found;
  };
  const Resources ring = resolved({"sp=2", "tp=2"}, 8, csa);
  EXPECT_EQ(ring.level_parts(), 4);
  EXPECT_EQ(ring.levels_from(), 4 * 128);
  EXPECT_EQ(places(ring, 8), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(mode_name(ring), "ring/levels+broadcast_q+csa");
  const Resources heads = resolved({"tp=4", "prefill=sp_tp"}, 4, csa);
  EXPECT_EQ(heads.level_parts(), 4);
  EXPECT_EQ(heads.levels_from(), 4 * 128);
  EXPECT_EQ(places(heads, 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(mode_name(heads), "sp_tp/levels+tp+csa");
  EXPECT_EQ(mode_name(heads, "pass_kv"), "sp_tp+tp") << "of a short prompt";
  EXPECT_FALSE(resolved({"dp=2"}, 2, csa).levels_from().has_value());
  EXPECT_FALSE(resolved({"tp=2"}, 2).levels_from().has_value());
}

TEST(Levels, OfTpAloneTakeItsModesInOneMicroPartition) {
  const std::vector<std::string> csa{"attention.sparse=csa"};
  for (const char* prefill : {"tp", "sp_tp", "ulysses"}) {
    const Resources found =
        resolved({"tp=2", fmt::format("prefill={}", prefill), "decode=tp"}, 2, csa);
    EXPECT_EQ(name_of(found.prefill), prefill);
    EXPECT_EQ(found.decode, parallel::DecodeMode::tp);
    EXPECT_EQ(found.sparse->micros, parallel::Micros{1});
  }
  EXPECT_NE(
      resolved({"tp=2"}, 2, csa).reasons.text().find("levels in 1 part: no tokens travel for them"),
      std::string::npos);
  test::expect_error<InputError>(
      [] {
        resolved({"tp=2"}, 2, {"attention.sparse=csa", "attention.pipeline=4"});
      },
      {"attention.pipeline: 4 needs cp or sp above 1", "the grid is TP 2", "use pipeline auto"});
  test::expect_error<InputError>(
      [] {
        resolved({"tp=2", "cp=2", "decode=tp"}, 4, {"attention.sparse=csa"});
      },
      {"parallel.decode tp needs cp 1, sp 1, tp above 1", "use decode pass_q or broadcast_q"});
  test::expect_error<InputError>(
      [] {
        resolved({"tp=2", "prefill=usp"}, 2, {"attention.sparse=csa"});
      },
      {"parallel.prefill usp needs cp above 1", "use prefill tp, sp_tp or ulysses"});
}

TEST(DtypeOf, HasATypeForEveryWord) {
  for (const auto& [precision, dtype] : {std::pair{job::Precision::fp32, DType::fp32},
                                         {job::Precision::bf16, DType::bf16},
                                         {job::Precision::fp16, DType::fp16},
                                         {job::Precision::fp8, DType::fp8},
                                         {job::Precision::int8, DType::int8},
                                         {job::Precision::int4, DType::int4}})
    EXPECT_EQ(dtype_of(precision), dtype);
}

/// Of Llama 3 70B, whose rows no other limit cuts.
TEST(BatchTokens, OfGpusLeaveRoomForWhatALibraryOfAttentionTakes) {
  model::ModelConfig config;
  config.hidden = 8192, config.ffn = 28672, config.layers = 80;
  config.num_heads = 64, config.num_kv_heads = 8, config.head_dim = 128;
  for (const DType stored : {DType::fp32, DType::bf16}) {
    config.stored_dtype = stored;
    const int64_t rows = resolve_batch_tokens({}, config, 1, true);
    const int64_t each =
        model::Model::activation_bytes_per_row(config, stored) + 64 * (2 * 128 * 2 + 128 * 4 + 4);
    EXPECT_LE(rows * each, activation_bytes(true));
    EXPECT_GT((rows + 256) * each, activation_bytes(true));
  }
}

TEST(BatchTokens, OfGpusLeaveRoomForTheWorkOfExperts) {
  model::ModelConfig config;
  config.hidden = 8192, config.layers = 1, config.num_heads = 64, config.num_kv_heads = 8;
  config.head_dim = 128, config.stored_dtype = DType::bf16;
  config.experts = {.count = 8, .per_token = 2, .ffn = 28672};
  config.pattern.resize(1);
  config.pattern[0].feed_forward = model::FeedForward::experts;
  job::Job job;
  const auto rows_less = [&](int64_t bytes) {
    const int64_t each = model::Model::activation_bytes_per_row(config, DType::bf16) +
                         kernels::library_bytes_per_row(64, 128);
    return (activation_bytes(true) - bytes) / each / 256 * 256;
  };
  ASSERT_LT(rows_less(0), 16384) << "no other limit cuts them";
  EXPECT_EQ(resolve_batch_tokens(job, config, 1, true), rows_less(kernels::gpu_expert_bytes));
  job.model.dtype = job::Precision::fp8;
  const int64_t with_codes = kernels::gpu_expert_bytes + kernels::gpu_widened_expert_bytes;
  EXPECT_EQ(resolve_batch_tokens(job, config, 1, true), rows_less(with_codes));
}

TEST(BatchTokens, GrowWithTheRanksThatShareRows) {
  job::Job job;
  const int64_t alone = resolve_batch_tokens(job, small_model(), 1);
  EXPECT_GE(alone, 256);
  EXPECT_LE(alone, 4096);
  EXPECT_EQ(alone % 256, 0);
  EXPECT_EQ(resolve_batch_tokens(job, small_model(), 4), 4 * alone);
  auto large = small_model();
  large.hidden = 16384, large.ffn = 65536;
  EXPECT_LT(resolve_batch_tokens(job, large, 1), alone);
  large.hidden = 1 << 15;
  EXPECT_EQ(resolve_batch_tokens(job, large, 1), 256);
  large.experts = {.count = 100, .per_token = 8, .ffn = 64};
  EXPECT_EQ(resolve_batch_tokens(job, large, 1), 1024) << "100 experts have 64 rows of 800 tokens";
  large.experts->count = 8;
  EXPECT_EQ(resolve_batch_tokens(job, large, 1), 256);
  large.latent = {1536, 512, 128, 64, 128};
  EXPECT_EQ(resolve_batch_tokens(job, large, 1), 1792) << "of 1638 tokens, keys take a quarter";
  job.reproducible = parallel::Reproducible::layout;  // the same cuts on any number of ranks
  EXPECT_EQ(resolve_batch_tokens(job, small_model(), 4), alone);
  job.batch.max_batch_tokens = 17;
  EXPECT_EQ(resolve_batch_tokens(job, small_model(), 4), 17);
}

/// A sequence that runs has two states with drafts.
TEST(States, AreTwiceAsManyWithDrafts) {
  model::ModelConfig config = small_model();
  config.recurrent = {.key_heads = 1, .key_dim = 16, .heads = 2, .value_dim = 16, .conv_rows = 4};
  config.pattern.resize(config.layers);
  config.pattern[1].mixer = model::MixerKind::recurrence;
  Resources resources;
  resources.max_sequences = 5;
  job::Job job;
  EXPECT_EQ(most_states(job, config, nullptr, resources), 5);
  job.generation.drafts.emplace(8);
  EXPECT_EQ(most_states(job, config, nullptr, resources), 10);
  EXPECT_EQ(most_states(job, small_model(), nullptr, resources), 0);
}

TEST(KvTokens, AreWhatTheMemoryHolds) {
  job::Job job;
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
  const batch::Inputs inputs(job, config);
  const auto tokens = [&](DType dtype, int64_t max_sequences) {
    resources.kv_dtype = dtype;
    resources.max_sequences = max_sequences;
    resources.max_batch_tokens = 4096;
    return resolve_kv_slots(job, config, &inputs, resources, free_host_bytes(*comm)).tokens;
  };
  // 3 layers × K and V × 2 heads × 16 × 4 bytes = 768 a token.
  EXPECT_GE(tokens(DType::fp32, 8), 900 + 100 + 20);
  EXPECT_LT(tokens(DType::fp32, 8), (1 << 20) / 768) << "no more than the requests can use";
  EXPECT_GE(tokens(DType::fp32, 1), 910);
  EXPECT_LT(tokens(DType::fp32, 1), 1010) << "one request at a time";
  job.kv.memory = 768 * 500 + 383;
  EXPECT_EQ(tokens(DType::fp32, 8), 500);
  EXPECT_EQ(tokens(DType::bf16, 8), 1000);
  job.kv.memory = 240 * 500 + 239;  // 3 × K and V × 2 heads × (16 codes + a scale of 4 bytes)
  EXPECT_EQ(tokens(DType::fp8, 8), 500);
  job.kv.memory = 768 * 500 + 383;
  resources.tp = 2;
  EXPECT_EQ(tokens(DType::fp32, 8), 1000) << "one of two heads on each rank";
  resources.sp = 2;
  EXPECT_EQ(tokens(DType::fp32, 8), 1000) << "two ranks hold the same head";
  resources.sp = resources.tp = 1;
  job.kv.memory = 767;
  test::expect_error<InputError>([&] { tokens(DType::fp32, 8); }, {"kv.memory", "767", "768"});
  job.kv.memory.reset();
  EXPECT_GE(tokens(DType::fp32, 8), 900 + 100 + 20) << "of what is free on this machine";
}

/// Two of three layers have a window of 100 tokens. A token takes 256 bytes in a layer.
struct RecentTokens : testing::Test {
  RecentTokens() {
    config = small_model();
    config.pattern.resize(3);
    config.pattern[0].window = 40, config.pattern[2].window = 100;
    resources.kv_dtype = DType::fp32;
    resources.max_sequences = 3;
    resources.max_batch_tokens = 1000;
  }
  KvSlots slots(int64_t memory, int64_t wanted) {
    return kv_slots(job, config, resources, memory, wanted);
  }

  job::Job job;
  model::ModelConfig config;
  Resources resources;
  /// Six sequences with the window, a margin and two blocks that are not full; a pass; two rows more
  /// of each.
  static constexpr int64_t enough = (6 * (99 + 128 + 2 * 128) + 1000 + 12 + 127) / 128 * 128;
  static constexpr int64_t plenty = int64_t{1} << 40;
};

TEST_F(RecentTokens, AreKeptAloneWhereThisSavesMemory) {
  EXPECT_EQ(slots(plenty, enough).recent_tokens, 0);
  EXPECT_EQ(slots(plenty, enough + 1).recent_tokens, enough);
  slots(plenty, 100'000).write_to(resources);
  EXPECT_EQ(resources.kv_tokens, 100'000);
  EXPECT_EQ(kv_memory_of_rank(config, resources), 256 * (100'000 + 2 * enough));
  resources.kv_recent_tokens = 0;
  EXPECT_EQ(kv_memory_of_rank(config, resources), 768 * 100'000);
}

TEST_F(RecentTokens, MakeRoomForMoreInLittleMemory) {
  const KvSlots found = slots(256 * (2 * enough + 7000) + 255, 100'000);
  EXPECT_EQ(found.tokens, 7000);
  EXPECT_EQ(found.recent_tokens, enough);
  EXPECT_EQ(found.room, 7000);
  const KvSlots few = slots(256 * 2 * enough, 100'000);  // nothing is left for the third layer
  EXPECT_EQ(few.tokens, 256 * 2 * enough / 768);
  EXPECT_EQ(few.recent_tokens, 0);
}

TEST_F(RecentTokens, AreAllThatLayersKeepWhereAllHaveAWindow) {
  config.pattern[1].window = 100;
  EXPECT_EQ(slots(768 * enough, 100'000).tokens, 100'000);
  EXPECT_EQ(slots(768 * enough - 1, 100'000).tokens, enough - 1);
}

TEST_F(RecentTokens, GoWithARingOfFixedInstancesAlone) {
  const auto kept = [&] { return slots(plenty, 100'000).recent_tokens; };
  ASSERT_GT(kept(), 0);
  resources.elastic = true;
  EXPECT_EQ(kept(), 0);
  resources.elastic = false, resources.sparse.emplace();
  EXPECT_EQ(kept(), 0);
  resources.sparse.reset(), job.reproducible = parallel::Reproducible::layout;
  EXPECT_EQ(kept(), 0);
  job.reproducible = parallel::Reproducible::run, job.kv.keep = job::KvKeeping::all;
  EXPECT_EQ(kept(), 0);
}

}  // namespace
}  // namespace pecia::resources
