// SPDX-License-Identifier: Apache-2.0
#include "lib/run/tune_samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/paired_loss.hpp"
#include "lib/simulation/tune/retrieval.hpp"

namespace pecia::run {
namespace {

double same_share(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  const size_t longer = std::max(a.size(), b.size());
  if (longer == 0) return 1;
  size_t same = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) same += a[i] == b[i];
  return static_cast<double>(same) / static_cast<double>(longer);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Of the prompt with this index: the best of all runs for times with the setting.
double least_ttft_s(const std::vector<TuneRun>& runs,
                    const std::vector<std::vector<PromptResult>>& results,
                    const std::optional<tune::Setting>& setting, size_t prompt) {
  constexpr double shortest_s = 1e-6;  // a clock may show 0
  double least = HUGE_VAL;
  for (size_t run = 0; run < runs.size(); ++run)
    if (!runs[run].judged && runs[run].setting == setting)
      least = std::min(least, results.at(run).at(prompt).ttft_s);
  PECIA_CHECK(std::isfinite(least), "no time of prompt {}", prompt);
  return std::max(shortest_s, least);
}

}  // namespace

void add_samples(tune::Tuned& tuned, const std::vector<TuneRun>& runs,
                 const std::vector<std::vector<PromptResult>>& results,
                 const std::vector<io::PromptText>& questions) {
  const size_t prompts = questions.size();
  const auto judged_dense =
      std::ranges::find_if(runs, [](const TuneRun& run) { return run.judged && !run.setting; });
  PECIA_CHECK(judged_dense != runs.end(), "no dense run");
  const std::vector<PromptResult>& dense = results.at(judged_dense - runs.begin());
  for (size_t run = 0; run < runs.size(); ++run) {
    if (!runs[run].judged) continue;
    const std::vector<PromptResult>& judged = results.at(run);
    PECIA_CHECK(judged.size() == 2 * prompts, "{} results of {}", judged.size(), prompts);
    for (size_t i = 0; i < prompts; ++i) {
      const PromptResult& result = judged[i];
      PECIA_CHECK(result.prompt == dense[i].prompt, "{} beside {}", result.prompt, dense[i].prompt);
      const double nll = mean_of(result.nlls);
      const double ttft_s = least_ttft_s(runs, results, runs[run].setting, i);
      const double retrieval = tune::retrieved(questions[i].tokens, judged[prompts + i].expected);
      if (!runs[run].setting) {
        tuned.dense.push_back({result.prompt, result.tokens, nll, retrieval, ttft_s});
        continue;
      }
      const tune::PairedLoss loss = tune::paired_loss(dense[i].nlls, result.nlls);
      tuned.samples.push_back({result.prompt, result.tokens, *runs[run].setting, nll, loss.mean,
                               loss.error, same_share(result.answer, dense[i].answer), retrieval,
                               ttft_s});
    }
  }
}

}  // namespace pecia::run
