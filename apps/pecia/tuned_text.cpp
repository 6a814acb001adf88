// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/tuned_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace pecia::app {
namespace {

/// Means over the prompts with one setting.
struct Row {
  tune::Setting setting;
  double loss = 0, error = 0, same_answers = 0, retrieval = 0, ttft_s = 0;
  int64_t prompts = 0;
};

std::vector<Row> rows_of(const std::vector<tune::Sample>& samples) {
  std::vector<Row> rows;
  for (const tune::Sample& sample : samples) {
    auto row = std::ranges::find(rows, sample.setting, &Row::setting);
    if (row == rows.end()) row = rows.insert(row, Row{sample.setting});
    row->loss += sample.loss, row->error += sample.loss_error * sample.loss_error;
    row->same_answers += sample.same_answers, row->retrieval += sample.retrieval;
    row->ttft_s += sample.ttft_s, ++row->prompts;
  }
  for (Row& row : rows) {
    const auto count = static_cast<double>(row.prompts);
    row.loss /= count, row.error = std::sqrt(row.error) / count;
    row.same_answers /= count, row.retrieval /= count, row.ttft_s /= count;
  }
  return rows;
}

std::string measured_text(const tune::Tuned& tuned) {
  double nll = 0, ttft_s = 0, retrieval = 0;
  int64_t shortest = INT64_MAX, longest = 0;
  for (const tune::DenseSample& sample : tuned.dense) {
    nll += sample.nll, ttft_s += sample.ttft_s, retrieval += sample.retrieval;
    shortest = std::min(shortest, sample.tokens), longest = std::max(longest, sample.tokens);
  }
  const auto count = static_cast<double>(tuned.dense.size());
  std::string text = fmt::format(
      "{} prompts of {} to {} tokens, means; the loss is in nats per token, ± its standard error\n"
      "{:>6}  {:>6}  {:>6}  {:>5}  {:>17}  {:>12}  {:>9}  {:>8}\n"
      "{:>6}  {:>6}  {:>6}  {:>5}  {:>17}  {:>12}  {:>8.0f}%  {:>8.2f}   log-likelihood {:.4f}\n",
      tuned.dense.size(), shortest, longest, "drop", "deal", "levels", "parts", "loss",
      "same answers", "retrieval", "TTFT s", "dense", "", "", "", "", "", 100 * retrieval / count,
      ttft_s / count, -nll / count);
  for (const Row& row : rows_of(tuned.samples))
    text += fmt::format(
        "{:>6.2f}  {:>6}  {:>6}  {:>5}  {:>8.4f} ± {:.4f}  {:>11.0f}%  {:>8.0f}%  {:>8.2f}\n",
        row.setting.drop, tune::name_of(row.setting.deal), row.setting.levels,
        parallel::to_string(row.setting.micros), row.loss, row.error, 100 * row.same_answers,
        100 * row.retrieval, row.ttft_s);
  return text;
}

std::string models_text(const tune::Tuned& tuned) {
  const tune::FitError &loss = tuned.loss_error, &time = tuned.time_error;
  const std::string unseen =
      tuned.time.s_per_pair > 0
          ? ""
          : "these times show nothing that dropping saves, so a goal of loss drops least: use "
            "longer prompts, or a machine that does nothing else\n";
  std::string text =
      unseen +
      fmt::format(
          "models of prompts that were held out, {} samples: loss off by {:.4f} nats, of "
          "which the samples' own errors make {:.4f} (accuracy {:.0f} %); TTFT off by {:.3g} "
          "s (accuracy {:.1f} %)\n",
          loss.samples, loss.mean_absolute, loss.noise, 100 * loss.accuracy, time.mean_absolute,
          100 * time.accuracy);
  text += "goals with prompts that were held out:";
  for (const tune::HeldOutGoal& of : tuned.held_out_goals) {
    const bool is_loss = of.goal.loss.has_value();
    text += &of == &tuned.held_out_goals.front() ? " " : ", ";
    text += is_loss ? fmt::format("loss {:g}", *of.goal.loss)
                    : fmt::format("{:.0f} % of dense TTFT", 100 * *of.goal.ttft_s);
    if (of.prompts == 0)
      text += " not met by any setting";
    else
      text += fmt::format(" {} (measured {})", of.kept ? "kept" : "missed",
                          is_loss ? fmt::format("{:.4f}", of.measured)
                                  : fmt::format("{:.0f} %", 100 * of.measured));
  }
  return text + "\n";
}

std::string oracle_text(const tune::Chosen& chosen) {
  if (!chosen.oracle) return "no measured setting meets it";
  const tune::Oracle& oracle = *chosen.oracle;
  std::string text = "best measured: " + to_string(oracle.best.setting);
  if (!oracle.models) return text + "; the models find none of these";
  text += chosen.goal.loss ? fmt::format(", gap {:+.1f} %", 100 * oracle.gap)
                           : fmt::format(", gap {:+.4f} nats", oracle.gap);
  return oracle.holds ? text : text + ", where the measured goal is missed";
}

std::string chosen_text(const tune::Chosen& chosen) {
  const std::string goal = chosen.goal.loss ? fmt::format("loss {:g}", *chosen.goal.loss)
                                            : fmt::format("TTFT {:.3g} s", *chosen.goal.ttft_s);
  const tune::Found& found = chosen.found;
  return fmt::format(
      "  {:<12} {}{}: loss up to {:.4f}, retrieval at least {:.0f} % of dense, TTFT {:.3g} s "
      "({})\n",
      goal, chosen.met ? "" : "not met; nearest ", to_string(found.setting), found.loss,
      100 * found.retrieval, found.ttft_s, oracle_text(chosen));
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
