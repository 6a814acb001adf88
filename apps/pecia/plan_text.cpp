// SPDX-License-Identifier: Apache-2.0
#include "apps/pecia/plan_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "apps/pecia/printable.hpp"
#include "lib/base/core/counted.hpp"
#include "lib/base/report/format.hpp"

namespace pecia::app {
namespace {

using report::format_bytes;
using report::format_count;
using report::format_duration;
using simulation::PlannedLayout;
using simulation::PlanReport;

std::string count_of(int64_t number) {
  return format_count(static_cast<double>(number));
}

/// What a rank sends for a prompt in layers with a window. Steps of the plan follow short prompts,
/// so they say little.
std::string windows_text(const attention::WindowTotals& windows) {
  if (windows.whole_ring_bytes == 0) return "";
  return fmt::format("; for the prompt, layers with a window send {} in place of {} round a ring",
                     format_bytes(windows.sent_bytes), format_bytes(windows.whole_ring_bytes));
}

std::string model_text(const PlanReport& plan) {
  const model::ModelConfig& model = plan.config;
  return fmt::format(
      "{}: {}, {} parameters{}, {} layers, {} query and {} KV heads of {}, length {}\n",
      plan.job.model.path.string(), name_of(model.family), count_of(model.parameters()),
      model.active_parameters() == model.parameters()
          ? ""
          : fmt::format(" ({} of them active)", count_of(model.active_parameters())),
      model.layers, model.num_heads, model.num_kv_heads, model.head_dim, model.max_positions);
}

/// Says a scaling that the model itself does not have.
std::string scaling_text(const PlanReport& plan) {
  const model::RopeConfig& rope = plan.config.rope;
  if (rope.scaling == model::RopeScaling::none || !plan.job.model.rope_scaling) return "";
  return fmt::format(
      "  planned with model.rope_scaling: {{type: {}, factor: {}}}, so the model reads {} tokens "
      "in "
      "place of {}\n",
      name_of(rope.scaling), rope.factor, plan.config.max_positions, rope.original_max_positions);
}

std::string prompts_text(const PlanReport& plan) {
  if (!plan.prompts_missing.empty()) return fmt::format("  prompts: {}\n", plan.prompts_missing);
  if (!plan.prompts) return "";
  const resources::PromptFootprint& prompts = *plan.prompts;
  std::string text =
      fmt::format("  prompts: {}, {}, {} tokens in all, up to {} new ones in all\n",
                  counted(prompts.requests, "request"), counted(prompts.turns, "turn"),
                  prompts.tokens, prompts.new_tokens);
  if (prompts.turns > 0)
    text += fmt::format("  longest prompt: {} tokens ({}), {} of the model's length\n",
                        prompts.longest_tokens, printable(prompts.longest_id, 120),
                        report::format_percent(static_cast<double>(prompts.longest_tokens) /
                                               static_cast<double>(plan.config.max_positions)));
  if (const int64_t over = prompts.over_length; over > 0) {
    const bool fails = plan.job.limits.over_length == job::OverLength::fail;
    text += fmt::format(
        "  too long: {}; limits.over_length: {} {}\n", counted(over, "prompt"), plan.over_length(),
        !fails      ? fmt::format("will leave out {}", counted(prompts.truncated_tokens, "token"))
        : over == 1 ? "will fail it"
                    : "will fail them");
  }
  return text;
}

std::string backend_text(const PlanReport& plan) {
  const std::string_view by = plan.backend_by;
  return fmt::format("  planned for {} (backend: {}), {}\n", plan.gpus ? "GPUs" : "CPUs",
                     name_of(plan.gpus ? job::BackendKind::cuda : job::BackendKind::cpu),
                     by == "job"       ? "as the job or --backend says"
                     : by == "cluster" ? "as the cluster's ranks are"
                     : plan.gpus       ? "as this machine has; --backend cpu plans for CPUs"
                                       : "as no GPU is seen here; --backend cuda plans for GPUs");
}

/// An op may take microseconds, a batch hours.
std::string time_text(double seconds) {
  return seconds < 1e-2 ? fmt::format("{:.3f} ms", 1e3 * seconds) : format_duration(seconds);
}

std::string calibration_text(const simulation::Calibration& calibration) {
  std::string text = fmt::format("  fitted to {}:\n", fmt::join(calibration.sources, ", "));
  for (const auto& [name, before, after] : calibration.factors)
    text += fmt::format("    {:<10} factor {:.3g}, was {:.3g}\n", name, after, before);
  if (calibration.kept) text += "    kept: later runs with such ranks foresee their time by it\n";
  text += fmt::format("    {:<64} {:>10} {:>10} {:>10} {:>8}\n", "passes or op", "took", "foreseen",
                      "before", "off");
  for (const auto& each : calibration.residuals)
    text += fmt::format("    {:<64} {:>10} {:>10} {:>10} {:>+7.1f} %\n", each.name,
                        time_text(each.taken_s), time_text(each.after_s), time_text(each.before_s),
                        100 * each.off());
  return text;
}

/// The cluster file as indented lines.
std::string cluster_text(const cluster_files::Cluster& cluster) {
  const std::string lines = to_yaml(cluster);
  std::string text = "  by this cluster file:\n    ";
  for (size_t i = 0; i < lines.size(); ++i) {
    text += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size()) text += "    ";
  }
  return text;
}

/// A line for each request of a layout, at most `most`.
std::string requests_text(const PlannedLayout& plan, size_t most) {
  std::string text;
  for (const auto& [shape, latency] : plan.requests) {
    if (most-- == 0) return text + "    …\n";
    const simulation::RankTimes& prefill = latency.prefill;
    text += fmt::format(
        "    {} tokens{}: first token after {} (products {}, attention {}, other {}, waiting for "
        "messages {}), then {} per token\n",
        shape.prompt_tokens,
        shape.cached_tokens > 0 ? fmt::format(" after {} cached", shape.cached_tokens) : "",
        format_duration(latency.ttft_s), format_duration(prefill.gemm_s),
        format_duration(prefill.attention_s), format_duration(prefill.other_s),
        format_duration(prefill.exposed_comm_s), format_duration(latency.tbt_s));
  }
  return text;
}

std::string grid_text(const PlannedLayout& plan) {
  const job::Job::Parallel& parallel = plan.parallel;
  std::string text;
  for (const auto& [name, degree] :
       {std::pair("DP", *parallel.dp), std::pair("PP", *parallel.pp),
        std::pair("CP", *parallel.cp.degree), std::pair("SP", *parallel.sp),
        std::pair("TP", *parallel.tp), std::pair("EP", plan.resources.ep)})
    if (degree != 1) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name, degree);
  return text.empty() ? "one rank" : text;
}

/// The job's section of a plan, as one line.
std::string job_line(const PlannedLayout& plan) {
  const job::Job::Parallel& parallel = plan.parallel;
  std::vector<std::string> words;
  const auto add = [&](const char* key, const auto& value) {
    words.push_back(fmt::format("{}: {}", key, value));
  };
  add("dp", *parallel.dp);
  if (*parallel.pp > 1) add("pp", *parallel.pp);
  add("cp", plan.resources.elastic ? "elastic" : std::to_string(*parallel.cp.degree));
  add("sp", *parallel.sp), add("tp", *parallel.tp);
  if (plan.resources.ep != 1) add("ep", plan.resources.ep);
  if (parallel.prefill) add("prefill", name_of(*parallel.prefill));
  if (parallel.ring) add("ring", name_of(*parallel.ring));
  if (parallel.decode) add("decode", name_of(*parallel.decode));
  if (parallel.shift_threshold) add("shift_threshold", *parallel.shift_threshold);
  if (plan.resources.gather_threshold) add("gather_threshold", *plan.resources.gather_threshold);
  return fmt::format("parallel: {{{}}}", fmt::join(words, ", "));
}

/// The best of each number of ranks, and what is left of `most` rows for the best others.
std::vector<const PlannedLayout*> rows_of(const std::vector<PlannedLayout>& plans, size_t most) {
  std::map<int, const PlannedLayout*> best;
  for (const PlannedLayout& plan : plans) best.try_emplace(plan.ranks, &plan);
  size_t others = most > best.size() ? most - best.size() : 0;
  std::vector<const PlannedLayout*> rows;
  for (const PlannedLayout& plan : plans) {
    const bool is_best = best[plan.ranks] == &plan;
    if (!is_best && others == 0) continue;
    if (!is_best) --others;
    rows.push_back(&plan);
  }
  return rows;
}

std::string row_text(const PlannedLayout& plan) {
  const simulation::RankMemory& memory = plan.memory;
  const std::string row = fmt::format("  {:>6}  {:<26} {:<30}", plan.ranks, grid_text(plan),
                                      resources::mode_name(plan.resources));
  if (!plan.fits()) return row + "  does not fit\n";
  double ttft_s = 0;
  for (const auto& [shape, latency] : plan.requests) ttft_s = std::max(ttft_s, latency.ttft_s);
  return row + fmt::format("{}{:>13} {:>10.2f} {:>12} {:>10}  {}\n", plan.by_one_rank() ? "*" : " ",
                           format_duration(plan.end->end_s), plan.gpu_hours(),
                           format_duration(ttft_s),
                           format_bytes(memory.program_bytes + memory.weight_bytes +
                                        memory.kv_bytes + memory.work_bytes),
                           limit_of(plan));
}

std::string sharing_text(const PlannedLayout& plan) {
  const batch::Sharing& sharing = plan.end->sharing;
  if (!plan.why_not_shared.empty() || sharing.requests == 0) return "";
  return fmt::format(
      "  in the best, {} begin alike in {}: {} prompt tokens are not computed again "
      "(batch.prefix_sharing)\n",
      counted(sharing.requests, "request"), counted(sharing.prefixes, "group"),
      count_of(sharing.spared_tokens()));
}

std::string best_text(const PlannedLayout& best) {
  constexpr size_t most_told = 6;
  return "  in the best, each request alone:\n" + requests_text(best, most_told) +
         sharing_text(best) +
         fmt::format("  the best ends between {} and {} after its start\n",
                     format_duration(best.end->soonest_s), format_duration(best.end->latest_s)) +
         fmt::format(
             "  to run the best: {}\n    sbatch --nodes={} jobs/slurm/pecia.sbatch job.yaml\n",
             job_line(best), best.servers);
}

std::string sweep_text(const simulation::SweepReport& sweep,
                       const simulation::ClusterReport& cluster) {
  const std::vector<PlannedLayout>& plans = sweep.plans;
  std::string text = batch_text(sweep.batch);
  if (!cluster.assumed.empty())
    text += fmt::format("  assumed: {}; --cluster FILE says it otherwise\n", cluster.assumed);
  text += fmt::format("  foreseen on {}: {}, {} played, {} cannot be faster, {} too large\n",
                      cluster.name, counted(sweep.counts.layouts, "layout"),
                      std::ranges::count_if(plans, &PlannedLayout::fits), sweep.counts.slower,
                      sweep.counts.too_large);
  const auto by_one = std::ranges::count_if(plans, &PlannedLayout::by_one_rank);
  if (by_one > 0 || sweep.counts.open > 0)
    text += fmt::format(
        "  with this number of ranks, {} of these are foreseen from one rank (*), and {} were not "
        "compared\n",
        by_one, counted(sweep.counts.open, "more layout"));
  text += fmt::format("  {:>6}  {:<26} {:<30} {:>13} {:>10} {:>12} {:>10}  {}\n", "ranks", "grid",
                      "prefill + decode", "batch ends", "GPU-hours", "first token", "of memory",
                      "limit");
  constexpr size_t most_rows = 12;
  for (const PlannedLayout* row : rows_of(plans, most_rows)) text += row_text(*row);
  for (const PlannedLayout& each : plans) {
    if (each.fits()) continue;
    text += fmt::format(
        "  does not fit on {}: {}; {}\n", counted(each.ranks, "rank"), *each.memory.why_not,
        each.would_fit ? "would fit: " + *each.would_fit : "no change that was tried would fit");
  }
  if (sweep.knee)
    text += fmt::format(
        "  knee: up to {} ranks, twice the ranks cost at most a quarter more "
        "GPU-hours\n",
        *sweep.knee);
  if (plans.front().fits()) text += best_text(plans.front());
  return text + cluster_text(cluster.cluster);
}

std::string rank_text(const simulation::RankPlan& rank, const PlanReport& plan) {
  const resources::WeightFootprint& weights = plan.weights;
  const resources::KvFootprint& kv = plan.kv;
  const auto& needs = rank.needs;
  std::string text =
      fmt::format("  weights: {} {}{}{}\n", weights.types, format_bytes(weights.bytes),
                  weights.assumed ? " (config.json names no type)" : "",
                  needs ? fmt::format(", {} on each rank", format_bytes(needs->weight_bytes)) : "");
  text += fmt::format("  KV: {}, {} per token, {} on the rank that holds it", name_of(kv.dtype),
                      format_bytes(kv.bytes_per_token), format_bytes(kv.bytes_per_token_of_rank));
  if (plan.prompts)
    text += fmt::format("; up to {} on each rank ({} at once)", format_bytes(kv.bytes_of_rank),
                        counted(std::min(kv.max_sequences, plan.prompts->requests), "request"));
  if (kv.recent_tokens_of_rank > 0)
    text += fmt::format("; layers with a window keep recent tokens alone, in {} slots",
                        kv.recent_tokens_of_rank);
  if (plan.job.kv.memory)
    text += fmt::format("; kv.memory allows {}", format_bytes(*plan.job.kv.memory));
  if (needs) {
    const resources::Resources& resources = rank.grid.resources;
    text +=
        fmt::format("\n  passes: {} of work memory on each rank", format_bytes(needs->work_bytes));
    if (needs->prefill_sent_bytes > 0)
      text += fmt::format("; a rank sends {} in one of {} prompt tokens, {} in a decode step of {}",
                          format_bytes(needs->prefill_sent_bytes), resources.max_batch_tokens,
                          format_bytes(needs->decode_sent_bytes),
                          counted(resources.max_sequences, "sequence"));
    text += windows_text(needs->prefill_windows);
  }
  return text + fmt::format("\n  {}: {}", counted(rank.ranks, "rank"), outcome_text(rank.grid));
}

/// What a step would have by how many drafted tokens are right.
std::string drafts_text(const PlanReport& plan) {
  const auto most = simulation::most_drafted(plan.job);
  if (!most) return "";
  std::string text = fmt::format(
      "  drafts: up to {} a step; what they save is not foreseen, so times are without drafts. A "
      "step has",
      counted(*most, "token"));
  std::string_view before = " ";
  for (const double accepted : simulation::drafts_accepted) {
    text += fmt::format("{}{:.1f} tokens if {:.0f} %", before,
                        simulation::tokens_of_a_step(*most, accepted), 100 * accepted);
    before = ", ";
  }
  return text + " of the drafted ones are right\n";
}

}  // namespace

std::string outcome_text(const simulation::GridOutcome& outcome) {
  if (!outcome.refused.empty()) return fmt::format("this job is refused: {}\n", outcome.refused);
  const Reasons& reasons = outcome.resources.reasons;
  return fmt::format("this job runs as {}{}{}\n", resources::mode_name(outcome.resources),
                     reasons.empty() ? "" : "; auto: ", reasons.text());
}

std::string batch_text(const simulation::BatchReport& batch) {
  const auto in_all = [&](int64_t tokens) {
    return batch.requests == 1 ? "" : fmt::format(" each, {} in all", count_of(tokens));
  };
  const auto& [fewest, most] = batch.prompt_of_a_request;
  std::string text = fmt::format(
      "  batch: {}; prompts: {}{}{}; answers: up to {}{}", counted(batch.requests, "request"),
      fewest == most ? "" : fmt::format("{} to ", fewest), counted(most, "token"),
      in_all(batch.prompt_tokens), counted(batch.new_of_a_request.second, "token"),
      in_all(batch.new_tokens));
  // With answers between them, or without the turns of a fork that do not see each other.
  if (batch.longest_prompt != most)
    text += fmt::format("; the longest turn sees {} tokens", batch.longest_prompt);
  return text + "\n";
}

std::string plan_text(const PlanReport& plan) {
  const std::string beginning = model_text(plan) + scaling_text(plan) + prompts_text(plan) +
                                backend_text(plan) + drafts_text(plan);
  if (!plan.sweep) return beginning + rank_text(*plan.rank, plan);
  return beginning +
         fmt::format("  weights: {} {}; KV: {}, {} per token\n", plan.weights.types,
                     format_bytes(plan.weights.bytes), name_of(plan.kv.dtype),
                     format_bytes(plan.kv.bytes_per_token)) +
         (plan.cluster->calibration ? calibration_text(*plan.cluster->calibration) : "") +
         sweep_text(*plan.sweep, *plan.cluster);
}

std::string cluster_plan_text(const simulation::ClusterReport& cluster) {
  return cluster.name + "\n" + calibration_text(*cluster.calibration) +
         cluster_text(cluster.cluster);
}

}  // namespace pecia::app
