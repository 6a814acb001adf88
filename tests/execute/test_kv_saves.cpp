// SPDX-License-Identifier: Apache-2.0
/// Which keys and values a run that stops keeps, and which of an earlier start's it uses.

#include <gtest/gtest.h>

#include <fstream>

#include "lib/engine/execute/kv_saves.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using batch::Request;
using execute::KvBytes;
using execute::KvSaves;
using execute::ReplicaTotals;
using schedule::Outcome;
using schedule::Plan;

// 2 layers × 4 KV heads × 8 numbers of fp32: 512 bytes a token, all on the one rank.
constexpr KvBytes bytes{2, 4, 8, DType::fp32, 512, 1};
constexpr int64_t tokens = 100;

Request some_request(int64_t row = 0) {
  Request request;
  request.turns.resize(1);
  request.turns[0].row = row;
  request.turns[0].max_new_tokens = 5;
  for (int32_t i = 0; i < tokens; ++i) request.turns[0].tokens.push_back(5 + i % 80);
  return request;
}

/// Two requests, the first one under way in passes of ten tokens.
class KvSavesTest : public testing::Test {
 protected:
  KvSavesTest() {
    io::ResultsLayout layout;
    layout.turns = {{"a/b", 0, 0, 0, 5, tokens}, {"second", 0, 1, 0, 5, tokens}};
    layout.vocab = 100;
    io::ResultsFile::create(folder_ / "results.h5", layout);
    results_.emplace(folder_ / "results.h5");
    limits_.kv_tokens = 1000;
    limits_.max_batch_tokens = 10;
    limits_.max_positions = 1000;
    limits_.vocab = 100;
  }

  KvSaves saves(const std::string& identity = "same", double seconds = 10) {
    return {{.folder = folder_ / "kv",
             .identity = identity,
             .bytes = bytes_,
             .seconds = seconds,
             .warn = [this](const std::string& text) { warnings_ += text + "\n"; }},
            *results_};
  }

  /// What a start keeps that has read `passes` chunks, each in `seconds`.
  ReplicaTotals keep(KvSaves& saves, Request request, int passes, double seconds,
                     const char* error = "") {
    schedule::Scheduler scheduler(limits_);
    saves.find(request);
    scheduler.add(std::move(request), 0);
    for (int pass = 0; pass < passes; ++pass) {
      const auto plan = scheduler.next(pass);
      Outcome outcome;
      outcome.kv.done = plan->restore.empty() ? 0 : 1;
      outcome.compute_s = plan->restore.empty() ? seconds : 0;
      scheduler.commit(*plan, {outcome}, pass + 1);
    }
    ReplicaTotals totals;
    while (const auto plan = saves.next(scheduler, 100, totals)) {
      plans_.push_back(*plan);
      Outcome outcome;
      outcome.kv.error = error;
      outcome.kv.done = outcome.kv.error.empty() ? 1 : 0;
      outcome.kv.seconds = 0.5;
      outcome.kv.bytes = 512 * (plan->save.end - plan->save.begin);
      const std::string file = fmt::format("{}-0.h5", plan->save.begin);
      std::ofstream(std::filesystem::path(plan->save.folder) / file) << "keys";
      if (outcome.kv.done != 0)
        outcome.kv.parts.push_back({file,
                                    plan->save.stamp,
                                    0,
                                    4,
                                    {{plan->save.begin, plan->save.end - plan->save.begin, 1}}});
      if (bytes_.states.any()) {
        const std::string states = fmt::format("{}-0-states.h5", plan->save.end);
        std::ofstream(std::filesystem::path(plan->save.folder) / states) << "states";
        outcome.kv.parts.push_back(
            {states, plan->save.stamp, 0, 4, {{plan->save.end - 1, 1, 1}}, io::KvLayers::states});
      }
      saves.commit(*plan, {outcome}, totals);
    }
    return totals;
  }

  /// What the next start finds of the request.
  int64_t found(Request request, const std::string& identity = "same") {
    KvSaves next = saves(identity);
    next.find(request);
    return request.saved.tokens;
  }

  std::filesystem::path save() const { return folder_ / "kv" / "00000000-a_b"; }

  TempFolder folder_;
  KvBytes bytes_ = bytes;
  std::optional<io::ResultsFile> results_;
  schedule::SchedulerLimits limits_;
  std::vector<Plan> plans_;
  std::string warnings_;
};

TEST_F(KvSavesTest, KeepsWhatTookLongerThanItsFiles) {
  // 30 tokens of 512 bytes, written and read at 200 MB/s: 154 µs.
  EXPECT_EQ(execute::keeping_s(bytes, 30, {}), 30 * 512 * 2 / 200e6);
  KvSaves cheap = saves();
  const ReplicaTotals none = keep(cheap, some_request(), 3, 51e-6);
  EXPECT_EQ(none.kept_requests, 0);
  EXPECT_EQ(none.not_worth_keeping, 1);
  EXPECT_FALSE(std::filesystem::exists(save()));
  EXPECT_EQ(found(some_request()), 0);

  KvSaves dear = saves();
  const ReplicaTotals kept = keep(dear, some_request(), 3, 52e-6);
  EXPECT_EQ(kept.kept_requests, 1);
  EXPECT_EQ(kept.kept_tokens, 30);
  EXPECT_EQ(kept.kept_bytes, 30 * 512);
  EXPECT_EQ(kept.keep_s, 0.5);
  EXPECT_EQ(found(some_request()), 30);
  EXPECT_EQ(warnings_, "");
}

TEST_F(KvSavesTest, GoesOnWithAnEarlierSave) {
  KvSaves first = saves();
  keep(first, some_request(), 3, 1);
  KvSaves second = saves();
  const ReplicaTotals totals = keep(second, some_request(), 5, 1);  // three of them read
  EXPECT_EQ(totals.kept_tokens, 20);
  ASSERT_EQ(plans_.size(), 2u);
  EXPECT_EQ(plans_[1].save.begin, 30);
  EXPECT_EQ(plans_[1].save.end, 50);
  EXPECT_NE(plans_[1].save.stamp, plans_[0].save.stamp);
  EXPECT_EQ(found(some_request()), 50);
  const auto save_now = io::read_kv_save(save());
  ASSERT_EQ(save_now->parts.size(), 2u);
  EXPECT_EQ(save_now->bytes, 50 * 512);
  EXPECT_TRUE(std::filesystem::exists(save() / "0-0.h5"));
}

/// Of states the last ones alone are kept, and they are used after as many tokens, or not at all.
TEST_F(KvSavesTest, HaveTheStatesAfterAllTheirTokens) {
  bytes_.states = {2, 4, 2, 8, 8, 3};
  bytes_.state_of_rank = bytes_.state_of_all = 5000;
  limits_.has_states = true;
  KvSaves first = saves();
  keep(first, some_request(), 3, 1);
  KvSaves second = saves();
  keep(second, some_request(), 5, 1);
  const auto save_now = io::read_kv_save(save());
  EXPECT_EQ(save_now->least, 50);
  EXPECT_EQ(save_now->states, bytes_.states);
  std::vector<std::string> files;
  for (const io::KvPart& part : save_now->parts) files.push_back(part.file);
  EXPECT_EQ(files, (std::vector<std::string>{"0-0.h5", "30-0.h5", "50-0-states.h5"}));
  EXPECT_FALSE(std::filesystem::exists(save() / "30-0-states.h5"));
  EXPECT_EQ(found(some_request()), 50);
  Request ends_there = some_request();
  ends_there.turns[0].tokens.resize(50);
  EXPECT_EQ(found(ends_there), 0);
  EXPECT_NE(warnings_.find("states are those after 50 tokens, and the last of these gives the "
                           "answer; the prompt is read again"),
            std::string::npos)
      << warnings_;
}

TEST_F(KvSavesTest, ThatFailLeaveWhatWasThere) {
  KvSaves failing = saves();
  EXPECT_EQ(keep(failing, some_request(), 3, 1, "no room").kept_requests, 0);
  EXPECT_NE(warnings_.find("a/b are not kept: rank 0: no room"), std::string::npos) << warnings_;
  EXPECT_FALSE(std::filesystem::exists(save()));
  KvSaves first = saves();
  keep(first, some_request(), 3, 1);
  KvSaves second = saves();
  EXPECT_EQ(keep(second, some_request(), 5, 1, "no room").kept_requests, 0);
  EXPECT_EQ(found(some_request()), 30);
  EXPECT_FALSE(std::filesystem::exists(save() / "30-0.h5"));
}

TEST_F(KvSavesTest, OfOtherTokensOrAnotherModelAreNotUsed) {
  KvSaves first = saves();
  keep(first, some_request(), 3, 1);
  EXPECT_EQ(found(some_request(), "other"), 0);
  EXPECT_NE(warnings_.find("kept for another model or precision; the prompt is read again"),
            std::string::npos)
      << warnings_;
  Request changed = some_request();
  ++changed.turns[0].tokens[29];
  EXPECT_EQ(found(changed), 0);
  EXPECT_NE(warnings_.find("kept for other tokens"), std::string::npos) << warnings_;
  Request shorter = some_request();
  shorter.turns[0].tokens.resize(29);
  EXPECT_EQ(found(shorter), 0);
  Request behind = some_request();
  ++behind.turns[0].tokens[30];
  EXPECT_EQ(found(behind), 30) << "what comes after it is nobody's business";
}

TEST_F(KvSavesTest, AreRemovedWithTheirRequest) {
  KvSaves first = saves();
  keep(first, some_request(), 3, 1);
  first.forget_settled();
  EXPECT_TRUE(std::filesystem::exists(save()));
  io::TurnResult result;
  result.prompt_tokens = tokens;
  result.finish_reason = io::FinishReason::length;
  results_->write(0, result, io::TurnState::done);
  first.forget_settled();
  EXPECT_FALSE(std::filesystem::exists(save()));
}

TEST_F(KvSavesTest, AreSweptWhereNobodyWantsThem) {
  const auto kv = folder_ / "kv";
  KvSaves first = saves();
  keep(first, some_request(), 3, 1);
  std::filesystem::create_directories(kv / "00000001-second");  // cut off
  std::filesystem::create_directories(kv / "00000007-unknown");
  execute::sweep_kv_saves(kv, *results_, false);
  EXPECT_TRUE(std::filesystem::exists(save()));
  EXPECT_FALSE(std::filesystem::exists(kv / "00000001-second"));
  EXPECT_FALSE(std::filesystem::exists(kv / "00000007-unknown"));
  execute::sweep_kv_saves(kv, *results_, true);
  EXPECT_FALSE(std::filesystem::exists(kv)) << "it is empty";
  execute::sweep_kv_saves(kv, *results_, false);  // nothing there
}

TEST_F(KvSavesTest, SweepNothingElse) {
  const auto kv = folder_ / "kv";
  for (const char* name : {"thesis", "2024", "-x"}) std::filesystem::create_directories(kv / name);
  execute::sweep_kv_saves(kv, *results_, true);
  for (const char* name : {"thesis", "2024", "-x"})
    EXPECT_TRUE(std::filesystem::exists(kv / name)) << name;
}

TEST_F(KvSavesTest, MayHaveAFolderElsewhere) {
  std::filesystem::create_directory(folder_ / "run");
  EXPECT_EQ(execute::make_kv_folder(folder_ / "run", ""), folder_ / "run" / "kv");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "kv"));
  for (int start = 0; start < 2; ++start) {
    const auto own = execute::make_kv_folder(folder_ / "run", folder_ / "scratch");
    EXPECT_TRUE(std::filesystem::is_symlink(own));
    EXPECT_EQ(std::filesystem::canonical(own).parent_path(),
              std::filesystem::canonical(folder_ / "scratch"));
  }
  std::filesystem::remove_all(folder_ / "scratch");
  EXPECT_TRUE(
      std::filesystem::is_directory(execute::make_kv_folder(folder_ / "run", folder_ / "scratch")))
      << "made anew where it has been removed";
}

TEST(KvRule, SaysFromWhichLengthOn) {
  const execute::KvRates rates{1e3, 1e3};  // 1.024 s for a token, written and read
  EXPECT_EQ(execute::shortest_worth_keeping(2, 1, bytes, rates), 1);
  EXPECT_EQ(execute::shortest_worth_keeping(0.024, 0.25, bytes, rates), 4);
  EXPECT_EQ(execute::shortest_worth_keeping(0.024, 0, bytes, rates), std::nullopt);
  KvBytes shared = bytes;
  shared.ring_size = 4;
  EXPECT_EQ(execute::shortest_worth_keeping(0.006, 0.25, shared, rates), 1);
  KvBytes with_state = bytes;
  with_state.state_of_rank = 1000;  // 2 s
  EXPECT_EQ(execute::shortest_worth_keeping(2, 0, with_state, rates), 3) << "0.976 s each";
  EXPECT_EQ(execute::shortest_worth_keeping(0.024, 1, with_state, rates), 2) << "n² > n + 2";
  EXPECT_EQ(execute::shortest_worth_keeping(1, 0, with_state, rates), std::nullopt);
}

}  // namespace
}  // namespace pecia::test
