// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/tuned_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace pecia::app {
namespace {

/// Means over the prompts with one setting.
struct Row {
  tune::Setting setting;
  double loss = 0, same_answers = 0, ttft_s = 0;
  int64_t prompts = 0;
};

std::vector<Row> rows_of(const std::vector<tune::Sample>& samples) {
  std::vector<Row> rows;
  for (const tune::Sample& sample : samples) {
    auto row = std::ranges::find(rows, sample.setting, &Row::setting);
    if (row == rows.end()) row = rows.insert(row, Row{sample.setting});
    row->loss += sample.loss, row->same_answers += sample.same_answers;
    row->ttft_s += sample.ttft_s, ++row->prompts;
  }
  for (Row& row : rows) {
    const auto count = static_cast<double>(row.prompts);
    row.loss /= count, row.same_answers /= count, row.ttft_s /= count;
  }
  return rows;
}

std::string measured_text(const tune::Tuned& tuned) {
  double nll = 0, ttft_s = 0;
  int64_t shortest = INT64_MAX, longest = 0;
  for (const tune::DenseSample& sample : tuned.dense) {
    nll += sample.nll, ttft_s += sample.ttft_s;
    shortest = std::min(shortest, sample.tokens), longest = std::max(longest, sample.tokens);
  }
  const auto count = static_cast<double>(tuned.dense.size());
  std::string text = fmt::format(
      "{} prompts of {} to {} tokens, means; the loss is in nats per token\n"
      "{:>6}  {:>6}  {:>8}  {:>12}  {:>8}\n{:>6}  {:>6}  {:>8}  {:>12}  {:>8.2f}   "
      "log-likelihood {:.4f}\n",
      tuned.dense.size(), shortest, longest, "drop", "levels", "loss", "same answers", "TTFT s",
      "dense", "", "", "", ttft_s / count, -nll / count);
  for (const Row& row : rows_of(tuned.samples))
    text += fmt::format("{:>6.2f}  {:>6}  {:>8.4f}  {:>11.0f}%  {:>8.2f}\n", row.setting.drop,
                        row.setting.levels, row.loss, 100 * row.same_answers, row.ttft_s);
  return text;
}

std::string models_text(const tune::Tuned& tuned) {
  const auto accuracy = [](const tune::FitError& error) {
    return error.large_samples > 0
               ? fmt::format("accuracy {:.1f} % on {}", 100 * error.accuracy, error.large_samples)
               : std::string("none large enough for an accuracy");
  };
  const std::string unseen =
      tuned.time.s_per_pair > 0
          ? ""
          : "these times show nothing that dropping saves, so a goal of loss drops least: use "
            "longer prompts, or a machine that does nothing else\n";
  return unseen + fmt::format(
                      "models on {} samples that were held out: loss off by {:.4f} nats ({}), TTFT "
                      "by {:.3g} s "
                      "({})\n",
                      tuned.loss_error.samples, tuned.loss_error.mean_absolute,
                      accuracy(tuned.loss_error), tuned.time_error.mean_absolute,
                      accuracy(tuned.time_error));
}

std::string oracle_text(const tune::Chosen& chosen) {
  if (!chosen.oracle) return "no measured setting meets it";
  const tune::Oracle& oracle = *chosen.oracle;
  std::string text = fmt::format("best measured: drop {:.2f} at {}", oracle.best.setting.drop,
                                 oracle.best.setting.levels);
  if (!oracle.models) return text + "; the models find none of these";
  text += chosen.goal.loss ? fmt::format(", gap {:+.1f} %", 100 * oracle.gap)
                           : fmt::format(", gap {:+.4f} nats", oracle.gap);
  return oracle.holds ? text : text + ", where the measured goal is missed";
}

std::string chosen_text(const tune::Chosen& chosen) {
  const std::string goal = chosen.goal.loss ? fmt::format("loss {:g}", *chosen.goal.loss)
                                            : fmt::format("TTFT {:.3g} s", *chosen.goal.ttft_s);
  const tune::Found& found = chosen.found;
  return fmt::format("  {:<12} {}drop {:.2f} at {} levels: loss {:.4f}, TTFT {:.3g} s ({})\n", goal,
                     chosen.met ? "" : "not met; nearest ", found.setting.drop,
                     found.setting.levels, found.loss, found.ttft_s, oracle_text(chosen));
}

}  // namespace

std::string tuned_text(const tune::Tuned& tuned) {
  std::string text = measured_text(tuned) + models_text(tuned);
  int64_t bucket = 0;
  for (const tune::Chosen& chosen : tuned.chosen) {
    if (chosen.shortest != bucket)
      text += fmt::format("prompts of {} to {} tokens, dense TTFT {:.3g} s:\n", chosen.shortest,
                          chosen.longest, chosen.dense_ttft_s);
    bucket = chosen.shortest;
    text += chosen_text(chosen);
  }
  return text;
}

}  // namespace pecia::app
