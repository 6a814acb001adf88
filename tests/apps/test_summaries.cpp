// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/pecia/summaries.hpp"
#include "lib/base/core/error.hpp"
#include "lib/files/disk/run_lock.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/kv/kv_save.hpp"
#include "lib/files/results/results.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::app {
namespace {

/// Turns 0 … 3 are a request each, turn 4 is the second one of turn 3's.
io::ResultsLayout five_turns() {
  io::ResultsLayout layout;
  for (int turn = 0; turn < 5; ++turn) {
    io::ResultTurn row;
    row.request_id = fmt::format("r{}", turn);
    row.request = std::min(turn, 3);
    row.turn = turn == 4 ? 1 : 0;
    row.slots = 4;
    row.prompt_tokens = 10;
    layout.turns.push_back(row);
  }
  layout.vocab = 16;
  layout.inputs = {"p.h5"};
  layout.identity = "{}";
  return layout;
}

io::TurnResult answer() {
  io::TurnResult done;
  done.tokens = {1, 2, 3};
  done.token_logprobs = {-1, -1, -1};
  done.prompt_tokens = 10;
  done.finish_reason = io::FinishReason::stop;
  return done;
}

class Summaries : public testing::Test {
 protected:
  test::TempFolder own_;
  std::filesystem::path folder_ = own_.path();
};

TEST_F(Summaries, OfAModelSayWhatItsLayersAre) {
  std::ofstream(folder_ / "config.json") << R"({"model_type": "gemma3_text", "vocab_size": 1000,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "head_dim": 16,
      "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 512,
      "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})";
  const auto summary = summarize_model(folder_);
  EXPECT_EQ(summary["model_type"], "gemma3_text");
  // Each layer has matrices of 64 × (2 · 64 + 2 · 32 + 3 · 96), norms of 4 · 64 and 2 · 16.
  EXPECT_EQ(summary["parameters"], 6 * (64 * 480 + 288) + 64 + 1000 * 64);
  ASSERT_EQ(summary["kinds_of_layers"].size(), 2u);
  EXPECT_EQ(summary["kinds_of_layers"][0]["layers"], (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(summary["kinds_of_layers"][0]["window"], 512);
  EXPECT_EQ(summary["kinds_of_layers"][0]["rotation"], "base 10000");
  EXPECT_EQ(summary["kinds_of_layers"][1]["rotation"], "base 1000000");
  EXPECT_EQ(summary["kv_bytes_per_token"]["bf16"], 6 * 2 * 2 * 16 * 2);
  EXPECT_EQ(summary["kv_bytes_of_windows"]["bf16"], 5 * 2 * 2 * 16 * 2);
  EXPECT_EQ(summary["legal_grids"]["2"], (std::vector<std::string>{"CP 2", "SP 2", "TP 2"}));
  const std::string text = model_text(summary);
  for (const char* words :
       {"gemma3_text", "in bf16", "5 × a window of 512, base 10000: layers 0 1",
        "1 × all tokens, base 1000000: layers 5", "768 B bf16",
        "in layers with a window, for recent tokens alone: 1.2 KiB fp32 640 B bf16",
        "grids of 4 ranks: CP 4", "norms before and after blocks"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST_F(Summaries, OfAMixtureSayHowManyParametersATokenMeets) {
  std::ofstream(folder_ / "config.json") << R"({"model_type": "qwen3_moe", "vocab_size": 1000,
      "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 32,
      "num_hidden_layers": 3, "head_dim": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
      "num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [0],
      "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})";
  const auto summary = summarize_model(folder_);
  const int64_t all = summary["parameters"].get<int64_t>();
  EXPECT_EQ(summary["active_parameters"], all - 2 * 6 * 3 * 64 * 32);
  EXPECT_TRUE(summary["kv_bytes_of_windows"].is_null());
  EXPECT_EQ(summary["experts"]["count"], 8);
  EXPECT_EQ(summary["experts"]["per_token"], 2);
  EXPECT_EQ(summary["kinds_of_layers"][0]["feed_forward"], "dense");
  EXPECT_EQ(summary["kinds_of_layers"][1]["feed_forward"], "experts");
  EXPECT_EQ(summary["kinds_of_layers"][1]["layers"], (std::vector<int>{1, 2}));
  const std::string text = model_text(summary);
  for (const char* words : {"of them active", "experts: 2 of 8 for each token, each with 32",
                            "softmax over all", "2 × all tokens, base 10000, experts: layers 1 2"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST_F(Summaries, OfAHybridSayWhatASequenceKeeps) {
  std::ofstream(folder_ / "config.json") << R"({"model_type": "qwen3_5_text", "vocab_size": 1000,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 16,
      "num_attention_heads": 4, "num_key_value_heads": 2, "linear_num_key_heads": 2,
      "linear_key_head_dim": 8, "linear_num_value_heads": 4, "linear_value_head_dim": 16,
      "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})";
  const auto summary = summarize_model(folder_);
  const int64_t of_layer = 4 * 8 * 16 + 3 * (2 * 2 * 8 + 4 * 16);  // of fp32
  EXPECT_EQ(summary["recurrence"]["state_bytes"], 3 * 4 * of_layer);
  EXPECT_EQ(summary["kv_bytes_per_token"]["bf16"], 2 * 2 * 16 * 2);
  EXPECT_EQ(summary["kinds_of_layers"][0]["mixer"], "recurrence");
  EXPECT_EQ(summary["kinds_of_layers"][1]["layers"], (std::vector<int>{3}));
  const std::string text = model_text(summary);
  for (const char* words :
       {"recurrence (gated delta net): 4 heads of 16 over 2 key heads of 8, convolutions of 4 rows",
        "of a sequence in 3 layers", "3 × recurrence: layers 0 1 2",
        "1 × all tokens, base 10000: layers 3", "gates of attention"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
}

TEST(Percentile, IsTheNearestRank) {
  std::vector<int64_t> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(percentile(hundred, 50), 50);
  EXPECT_EQ(percentile(hundred, 99), 99);
  EXPECT_EQ(percentile(hundred, 100), 100);
  EXPECT_EQ(percentile({7}, 1), 7);
  EXPECT_EQ(percentile({1, 2, 3}, 50), 2);
  EXPECT_THROW(percentile({}, 50), InvalidArgument);
}

TEST_F(Summaries, OfAPromptShardCountTokensPerTurn) {
  const std::vector<int32_t> tokens{5, 6, 7, 8, 9, 10};
  const std::vector<int64_t> turn_offsets{0, 3, 4, 6}, request_offsets{0, 2, 3};
  const auto path = folder_ / "p.h5";
  {
    io::Hdf5File file = io::Hdf5File::create(path);
    file.create_dataset("/tokens", H5T_STD_I32LE, {6}).write(H5T_NATIVE_INT32, tokens.data());
    file.create_dataset("/turn_offsets", H5T_STD_I64LE, {4})
        .write(H5T_NATIVE_INT64, turn_offsets.data());
    file.create_dataset("/request_offsets", H5T_STD_I64LE, {3})
        .write(H5T_NATIVE_INT64, request_offsets.data());
    const auto text = io::hdf5_text_type(4);
    file.create_dataset("/request_id", text.get(), {2}).write(text.get(), "a\0\0\0book");
    file.set_attribute("schema", std::string("pecia.prompts/1"));
    file.set_attribute("followup", std::string("fork"));
    file.close();
  }
  const auto summary = summarize_prompts(path);
  EXPECT_EQ(summary["requests"], 2);
  EXPECT_EQ(summary["turns"], 3);
  EXPECT_EQ(summary["tokens"], 6);
  EXPECT_EQ(summary["followup"], "fork");
  EXPECT_EQ(summary["turn_tokens"]["min"], 1);
  EXPECT_EQ(summary["turn_tokens"]["p50"], 2);
  EXPECT_EQ(summary["turn_tokens"]["max"], 3);
  EXPECT_NE(prompts_text(summary).find("2 requests, 3 turns (fork), 6 tokens"), std::string::npos);
}

TEST_F(Summaries, OfResultsCountStatesAndGroupFailures) {
  const io::ResultsLayout layout = five_turns();
  const auto path = folder_ / "results.h5";
  io::ResultsFile::create(path, layout);
  {
    io::ResultsFile file(path);
    file.write(0, answer(), io::TurnState::done);
    io::TurnResult failed;
    failed.prompt_tokens = 10;
    failed.finish_reason = io::FinishReason::failed;
    failed.error = "too long";
    file.write(1, failed, io::TurnState::failed);
    file.write(3, failed, io::TurnState::failed);
    failed.error = "empty";
    file.write(2, failed, io::TurnState::failed);
  }
  const auto summary = summarize_results(path);
  EXPECT_EQ(summary["schema"], "pecia.results/1");
  EXPECT_EQ(summary["turns"], 5);
  EXPECT_EQ(summary["done"], 1);
  EXPECT_EQ(summary["failed"], 3);
  EXPECT_EQ(summary["open"], 1);
  EXPECT_EQ(summary["output_tokens"], 3);
  EXPECT_EQ(summary["prompt_tokens"], 10) << "what failed was not read";
  ASSERT_EQ(summary["failures"].size(), 2u);
  EXPECT_EQ(summary["failures"][0]["turns"], 2);
  EXPECT_EQ(summary["failures"][0]["error"], "too long");
  EXPECT_EQ(summary["requests"].dump(), R"({"total":4,"done":1,"failed":2,"unfinished":1})");
  EXPECT_EQ(summary["answer_tokens"]["max"], 3);
  EXPECT_EQ(results_line(summary), "1 of 5 turns done, 3 failed, 0 partial");
  EXPECT_NE(results_text(summary).find("5 turns: 1 done, 0 partial, 3 failed, 1 open"),
            std::string::npos);
  EXPECT_EQ(
      summary["failed_turns"].dump(),
      R"([{"request_id":"r1","turn":0,"error":"too long"},{"request_id":"r2","turn":0,"error":"empty"},)"
      R"({"request_id":"r3","turn":0,"error":"too long"}])");
  EXPECT_NE(results_text(summary).find(
                "  3 failed:\n    r1: too long\n    r2: empty\n    r3: too long\n"),
            std::string::npos)
      << results_text(summary);
  EXPECT_EQ(summary["truncated_turns"], 0);
  EXPECT_EQ(results_text(summary).find("truncated"), std::string::npos);
}

TEST_F(Summaries, OfResultsListWhatFailedUpToSomeLines) {
  io::ResultsLayout layout = five_turns();
  layout.turns.assign(25, layout.turns[0]);
  for (int turn = 0; turn < 25; ++turn) {
    layout.turns[turn].request_id = fmt::format("r\x1b[2J{}", turn);
    layout.turns[turn].turn = turn == 1 ? 1 : 0;
  }
  const auto path = folder_ / "results.h5";
  io::ResultsFile::create(path, layout);
  {
    io::ResultsFile file(path);
    io::TurnResult failed;
    failed.finish_reason = io::FinishReason::failed;
    for (int turn = 0; turn < 25; ++turn) {
      failed.error = turn < 24 ? "too long" : "empty";
      file.write(turn, failed, io::TurnState::failed);
    }
  }
  const auto summary = summarize_results(path);
  EXPECT_EQ(summary["failed_turns"].size(), 25u);
  EXPECT_EQ(summary["failed_turns"][24]["error"], "empty");
  const std::string text = results_text(summary);
  EXPECT_NE(text.find("  25 failed:\n    24 ×: too long\n    1 ×: empty\n  which are\n"
                      "    r\\x1b[2J0: too long\n    r\\x1b[2J1, turn 2: too long\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("    r\\x1b[2J19: too long\n    … and 5 more; --json lists all\n"),
            std::string::npos)
      << text;
}

TEST_F(Summaries, OfResultsSayWhatWasCut) {
  const auto path = folder_ / "results.h5";
  io::ResultsFile::create(path, five_turns());
  {
    io::ResultsFile file(path);
    io::TurnResult cut = answer();
    cut.truncated_tokens = 2990;
    file.write(0, cut, io::TurnState::done);
    cut.truncated_tokens = 0;
    cut.finish_reason = io::FinishReason::length;  // with 3 of its 4 slots
    file.write(1, cut, io::TurnState::done);
    cut.tokens = {1, 2, 3, 4};
    cut.token_logprobs.push_back(-1);
    file.write(2, cut, io::TurnState::done);
    cut.tokens.clear();
    cut.token_logprobs.clear();
    file.write(3, cut, io::TurnState::done);
  }
  const auto summary = summarize_results(path);
  EXPECT_EQ(summary["truncated_turns"], 1);
  EXPECT_EQ(summary["truncated_tokens"], 2990);
  EXPECT_EQ(summary["cut_by_length"], 2);
  EXPECT_EQ(summary["cut_by_model_length"], 1);
  EXPECT_EQ(summary["truncated"].dump(),
            R"([{"request_id":"r0","turn":0,"prompt_tokens":10,"truncated_tokens":2990}])");
  EXPECT_NE(results_text(summary).find(
                "  1 prompt truncated by limits.over_length, 2990 tokens left out:\n"
                "    r0: 2990 of 3000 tokens left out\n"
                "  1 answer cut at max_new_tokens\n"
                "  1 answer cut at the model's length\n"),
            std::string::npos)
      << results_text(summary);
  EXPECT_EQ(results_line(summary), "4 of 5 turns done, 0 failed, 0 partial, 1 truncated");
}

TEST_F(Summaries, OfARunSayHowItStands) {
  const auto state = [&] { return summarize_run(folder_)["state"].get<std::string>(); };
  EXPECT_THROW(summarize_run(folder_), InputError);
  {
    const io::RunLock lock(folder_);
    EXPECT_EQ(state(), "starting");
    io::ResultsFile::create(folder_ / "results.h5", five_turns());
    EXPECT_EQ(state(), "running");
    EXPECT_EQ(summarize_run(folder_)["holder"]["pid"], getpid());
    EXPECT_THROW(io::RunLock{folder_}, InputError) << "a look takes nobody's lock";
  }
  EXPECT_EQ(state(), "stopped");
  EXPECT_EQ(summarize_run(folder_)["holder"], nullptr);
  // No process has this number: Linux gives at most 2^22.
  std::ofstream(folder_ / ".lock") << fmt::format(
      R"({{"host": "{}", "pid": {}, "started": "then", "command": "pecia", "process_start": "1"}})",
      cluster::host_name(), 1 << 23);
  EXPECT_EQ(state(), "killed");
  EXPECT_NE(run_text(summarize_run(folder_)).find("run, killed, process 8388608 on "),
            std::string::npos);
  std::ofstream(folder_ / ".lock") << "";
  EXPECT_EQ(state(), "running") << "a holder that is just writing its name";
  std::filesystem::remove(folder_ / ".lock");
  {
    io::ResultsFile file(folder_ / "results.h5");
    for (int turn = 0; turn < 5; ++turn) file.write(turn, answer(), io::TurnState::done);
  }
  EXPECT_EQ(state(), "finished");
  EXPECT_EQ(run_line(summarize_run(folder_)), "finished · 5 of 5 turns done, 0 failed, 0 partial");
}

TEST_F(Summaries, OfARunHaveItsProgressWhileItRuns) {
  const io::RunLock lock(folder_);
  io::ResultsFile::create(folder_ / "results.h5", five_turns());
  std::ofstream(folder_ / "progress.json") << R"({"work_share": 0.25, "prefill_tokens_per_s": 41200,
      "decode_tokens_per_s": 1900, "remaining_s": 702, "updated_unix_s": 1})";
  auto summary = summarize_run(folder_);
  EXPECT_GT(summary["progress"]["age_s"], 1e9);
  EXPECT_EQ(run_line(summary),
            "running · 0 of 5 turns done, 0 failed, 0 partial · 25 % of the work · prefill 41.2k "
            "tok/s · decode 1.9k tok/s · 11 min 42 s left");
  EXPECT_NE(run_text(summary).find("11 min 42 s left (told "), std::string::npos);
  // Of another version: what is missing is not known, nothing fails.
  std::ofstream(folder_ / "progress.json") << R"({"work_share": "much"})";
  summary = summarize_run(folder_);
  EXPECT_NE(run_text(summary).find("? of the work"), std::string::npos) << run_text(summary);
  EXPECT_NE(run_text(summary).find("time left unknown (told at an unknown time)"),
            std::string::npos);
  std::ofstream(folder_ / "progress.json") << "[";
  EXPECT_THROW(summarize_run(folder_), InputError);
}

TEST_F(Summaries, OfARunHaveItsReport) {
  io::ResultsFile::create(folder_ / "results.h5", five_turns());
  std::ofstream(folder_ / "report.json") << R"({"seconds": 702, "job": {}, "errors": ["a"]})";
  const auto summary = summarize_run(folder_);
  EXPECT_EQ(summary["report"]["seconds"], 702);
  EXPECT_EQ(summary["report"]["phases"], nullptr);
  EXPECT_FALSE(summary["report"].contains("job"));
  EXPECT_NE(run_text(summary).find("its last start took 11 min 42 s"), std::string::npos);
}

TEST_F(Summaries, OfARunSayWhatAKillWouldLeave) {
  io::ResultsFile::create(folder_ / "results.h5", five_turns());
  const auto durable = [&] { return summarize_run(folder_)["durable"].dump(); };
  EXPECT_EQ(durable(), R"({"settled_turns":0,"output_tokens":0,"kept_tokens":0})");
  for (const char* name : {"00000001-a", "00000003-b", "00000004-cut-off"})
    std::filesystem::create_directories(folder_ / "kv" / name);
  io::KvSave save;
  save.tokens = 1000;
  save.bytes = 1 << 20;
  io::write_kv_save(folder_ / "kv" / "00000001-a", save);
  io::write_kv_save(folder_ / "kv" / "00000003-b", save);
  io::ResultsFile(folder_ / "results.h5").write(0, answer(), io::TurnState::done);
  const auto tokens = summarize_run(folder_)["results"]["output_tokens"].get<int64_t>();
  EXPECT_GT(tokens, 0);
  EXPECT_EQ(durable(),
            fmt::format(R"({{"settled_turns":1,"output_tokens":{},"kept_tokens":2000}})", tokens));
  EXPECT_NE(run_text(summarize_run(folder_))
                .find("keys and values of 2 unfinished requests are kept: 2000 tokens, 2.0 MiB"),
            std::string::npos);
  std::ofstream(folder_ / "kv" / "00000003-b" / "save.json") << "damaged";
  EXPECT_EQ(summarize_run(folder_)["kept_kv"]["requests"], 1);
}

TEST_F(Summaries, RefuseOtherFiles) {
  EXPECT_THROW(summarize_prompts(folder_ / "absent.h5"), InputError);
  EXPECT_THROW(summarize_results(folder_ / "absent.h5"), InputError);
}

}  // namespace
}  // namespace pecia::app
