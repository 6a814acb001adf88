// SPDX-License-Identifier: Apache-2.0
/// Every family against transformers (tests/goldens), on any number of ranks.

#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/full_matrix.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/replica.hpp"

namespace pecia::test {
namespace {

using nlohmann::json;

// Of log-probabilities: the project's bound. transformers' own two ways differ by 6e-6 here.
constexpr double tolerance = 1e-4;

struct Golden : testing::TestWithParam<std::tuple<std::string, int64_t>> {};

TEST_P(Golden, IsMet) {
  const auto& [name, max_batch_tokens] = GetParam();
  const std::filesystem::path folder = golden(name);
  const json cases = json::parse(std::ifstream(folder / "golden.json"))["cases"];
  std::vector<batch::Request> requests;
  for (size_t i = 0; i < cases.size(); ++i)
    requests.push_back(greedy_request(static_cast<int64_t>(i), cases[i]["prompt"],
                                      static_cast<int32_t>(cases[i]["greedy"].size())));
  ReplicaSettings settings;
  const bool on_gpus = settings.place == TestPlace::emulated_staged;
  if (on_gpus && !takes_fp32_on_gpus(name) && !model::read_config(folder).experts)
    GTEST_SKIP() << "test_narrow_goldens has this family";
  settings.max_batch_tokens = max_batch_tokens;
  settings.logprobs = -1;
  settings.prompt_logprobs = 1;
  const auto comm = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));

  const auto results = run_requests(*comm, folder, std::move(requests), settings);

  ASSERT_EQ(results.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const json& golden = cases[i];
    SCOPED_TRACE(fmt::format("{}, prompt of {} tokens", name, golden["prompt"].size()));
    const batch::Finished& found = results.at(static_cast<int64_t>(i));
    ASSERT_EQ(found.state, io::TurnState::done) << found.result.error;
    EXPECT_EQ(found.result.tokens, golden["greedy"].get<std::vector<int32_t>>());
    EXPECT_TRUE(all_close(found.result.token_logprobs,
                          golden["greedy_logprobs"].get<std::vector<float>>(), tolerance));
    const auto last = golden["logprobs"].get<std::vector<float>>();
    EXPECT_TRUE(
        all_close(std::span(found.result.top_logprobs).first(last.size()), last, tolerance));
    const auto prompt = golden["prompt_logprobs"].get<std::vector<float>>();
    ASSERT_EQ(found.result.prompt_logprobs.size(), prompt.size() + 1);
    EXPECT_TRUE(std::isnan(found.result.prompt_logprobs.front()));
    EXPECT_TRUE(all_close(std::span(found.result.prompt_logprobs).subspan(1), prompt, tolerance));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, Golden,
                         testing::Combine(testing::ValuesIn(golden_names()),
                                          testing::Values(4096, 40)),
                         [](const auto& golden) {
                           std::string text = fmt::format("{}_chunk_{}", std::get<0>(golden.param),
                                                          std::get<1>(golden.param));
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

}  // namespace
}  // namespace pecia::test
