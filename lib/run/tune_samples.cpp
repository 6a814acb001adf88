// SPDX-License-Identifier: Apache-2.0
#include "lib/run/tune_samples.hpp"

#include <algorithm>
#include <numeric>

#include "lib/core/error.hpp"
#include "lib/tune/paired_loss.hpp"
#include "lib/tune/retrieval.hpp"

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

}  // namespace

void add_samples(tune::Tuned& tuned, const std::vector<TuneRun>& runs,
                 const std::vector<std::vector<PromptResult>>& results,
                 const std::vector<io::PromptText>& questions) {
  constexpr double shortest_s = 1e-6;  // a clock may show 0
  const size_t prompts = questions.size();
  const std::vector<PromptResult>& dense = results.at(1);
  for (size_t run = 0; run < runs.size(); run += 2) {
    const std::vector<PromptResult>&timed = results.at(run), &judged = results.at(run + 1);
    PECIA_CHECK(timed.size() == prompts && judged.size() == 2 * prompts, "{} and {} results of {}",
                timed.size(), judged.size(), prompts);
    for (size_t i = 0; i < prompts; ++i) {
      const PromptResult& result = judged[i];
      PECIA_CHECK(result.prompt == timed[i].prompt && result.prompt == dense[i].prompt,
                  "{} beside {}", result.prompt, timed[i].prompt);
      const double nll = mean_of(result.nlls), ttft_s = std::max(shortest_s, timed[i].ttft_s);
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
