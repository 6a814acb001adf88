// SPDX-License-Identifier: Apache-2.0
#include "lib/run/validate.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/base/core/counted.hpp"
#include "lib/base/core/escaped.hpp"
#include "lib/engine/execute/source.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/files/disk/run_lock.hpp"
#include "lib/files/disk/sampled_hash.hpp"
#include "lib/model/weights/weights.hpp"
#include "lib/run/answer_grammars.hpp"
#include "lib/run/load_weights.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/batch/carry_over.hpp"
#include "lib/work/batch/earlier.hpp"
#include "lib/work/batch/identity.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/batch/turn_counts.hpp"
#include "lib/work/job/job_model.hpp"
#include "lib/work/resources/footprint.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::run {
namespace {

constexpr size_t most_listed = 10;
constexpr int64_t plenty = INT64_MAX >> 24;  // KV slots; all instances together have them, too

/// Limits of a scheduler that refuses the same requests as the run's would: with the memory that
/// the job names, or else with all that they could need.
schedule::SchedulerLimits limits_of(const job::Job& job, const model::ModelConfig& config,
                                    const resources::Resources& resources) {
  schedule::SchedulerLimits limits = schedule::limits_of(job, config, resources);
  limits.ring = parallel::AttentionExchange::pass_kv;  // no rates are measured here
  limits.objective = job::Objective::throughput;       // nor times, which refuse nothing
  limits.tbt_s.reset();
  limits.scheduler = job::TeamScheduler::greedy;
  limits.kv_tokens = plenty;
  if (job.kv.memory)
    limits.kv_tokens = resources::kv_slots(job, config, resources, *job.kv.memory, plenty).tokens;
  return limits;
}

/// Adds the turns that are sure to fail, and leaves them out of the inputs' figures.
void find_failures(const schedule::SchedulerLimits& limits, batch::Inputs& inputs,
                   Validation& found) {
  std::vector<int64_t> refused, failing;
  for (const batch::InputRequest& of : inputs.requests()) {
    batch::Request request = inputs.load(of);
    const auto turns = static_cast<int32_t>(request.turns.size());
    bool begun = false;
    for (const batch::Turn& turn : request.turns) {
      begun = begun || turn.finished;
      if (!turn.refused.empty() && !turn.recorded) refused.push_back(turn.row);
    }
    schedule::SchedulerLimits own = limits;
    if (begun) own.kv_tokens = plenty;  // it continues answers that are not loaded here
    int64_t first = -1;
    for (const batch::Finished& failed : execute::refused_at_once(std::move(request), own)) {
      failing.push_back(failed.row);
      if (first >= 0 && failed.row > first) continue;
      if (first >= 0) found.failures.pop_back();
      first = failed.row;
      found.failures.push_back({inputs.prompt(of).id, static_cast<int32_t>(first - of.first_row),
                                turns, failed.result.error});
    }
  }
  inputs.leave_out(refused);
  found.any_can_run = refused.empty() || inputs.any_can_run();
  inputs.leave_out(failing);
}

std::string held_text(const std::filesystem::path& output) {
  const auto holder = io::run_holder(output);
  if (!holder || holder->dead) return {};
  if (holder->host.empty()) return fmt::format("{} is in use by another run", output.string());
  return fmt::format("{} is held by process {} on host {} since {}", output.string(), holder->pid,
                     holder->host, holder->started);
}

/// Remarks on what the run would make of existing results.
std::vector<std::string> remarks_on(const std::filesystem::path& path,
                                    const io::ResultsLayout& layout, bool retry_failed,
                                    const batch::Inputs& inputs) {
  const io::ResultsFile results(path, io::Access::read);
  const batch::Continuation next = batch::continuation(
      results, layout, retry_failed, path,
      [&](const std::string& key, int64_t row) { return inputs.depends_on(key, row); });
  batch::TurnCounts now = batch::count_turns(results);
  if (retry_failed) now.open += std::exchange(now.failed, 0);
  const int64_t to_go = now.unfinished() + std::ssize(layout.turns) - results.num_turns();
  std::vector<std::string> remarks = next.remarks;
  remarks.insert(remarks.end(), next.warnings.begin(), next.warnings.end());
  remarks.push_back(fmt::format("{}: {}: {} done, {} failed{}, {} to go", path.string(),
                                to_go > 0 ? "continues" : "nothing is left to do",
                                counted(now.done, "turn"), now.failed,
                                now.failed > 0 ? " (--retry-failed takes them again)" : "", to_go));
  return remarks;
}

}  // namespace

Validation validate(job::Job job, int num_ranks, bool fresh, bool retry_failed) {
  const model::ModelConfig config = job::read_model_config(job);
  resources::Resources resources;
  resources::resolve_grid(job, config, num_ranks, resources);
  const model::Weights weights(config, io::Checkpoint(job.model.path), {});
  const model::Quantize quantize = resources::quantize_of(job);
  const DType stored = weights.matrix_type();
  const bool converted = job.model.dtype && quantize == model::Quantize::nothing;
  resources.kv_dtype =
      resources::resolve_kv_dtype(job,
                                  converted ? resources::dtype_of(*job.model.dtype)
                                  : quantize == model::Quantize::nothing ? stored
                                                                         : DType::int8,
                                  weights.embedding.dtype());
  resources.max_batch_tokens = resources::resolve_batch_tokens(
      job, config, parallel::row_ranks(resources.degrees(), resources.prefill), resources.gpus);

  const batch::Earlier earlier = batch::read_earlier(job, fresh, retry_failed);
  batch::reorder_inputs(job, earlier.order);
  batch::Inputs inputs(job, config, earlier.turns);
  inputs.detokenizer();
  if (inputs.needs_head()) require_head(weights, job);
  if (!inputs.shapes().empty()) answer_grammars(job, config, inputs.shapes(), 1);
  resources.max_sequences = resources::resolve_max_sequences(job, config, &inputs, resources);
  const int64_t longest = resources::prompt_footprint(job, config, inputs).longest_tokens;
  tune::settle_tuned(job, config, std::min(longest, config.max_positions), {}, resources);
  Validation found;
  found.num_ranks = num_ranks;
  found.shards = std::ssize(job.input);
  found.requests = std::ssize(inputs.requests());
  const auto path = job.output / "results.h5";
  if (!fresh && std::filesystem::exists(path)) {
    io::ResultsLayout layout = inputs.layout();
    layout.identity = batch::identity(job, config, weights.checkpoint(),
                                      io::sampled_sha256(io::checkpoint_files(job.model.path)),
                                      resources.kv_dtype, earlier.input_sha256);
    layout.settings = {batch::turn_settings(job)};
    found.remarks = remarks_on(path, layout, retry_failed, inputs);
  }
  if (const std::string held = held_text(job.output); !held.empty()) found.remarks.push_back(held);
  find_failures(limits_of(job, config, resources), inputs, found);
  found.prompt_tokens = inputs.prompt_tokens();
  found.cut_prompts = inputs.cut_prompts();
  return found;
}

std::string to_text(const Validation& validation, const job::Job& job) {
  std::string text = fmt::format(
      "{}; {} in {}, {}, output {}\n", validation.any_can_run ? "valid" : "no request can run",
      counted(validation.requests, "request"), counted(validation.shards, "prompt shard"),
      counted(validation.prompt_tokens, "prompt token"), job.output.string());
  text += fmt::format(
      "  checked: the job file, the model's configuration and tensors, all prompt tokens, {} on "
      "{}\n",
      job.kv.memory ? "modes and kv.memory" : "modes", counted(validation.num_ranks, "rank"));
  if (!validation.failures.empty())
    text += fmt::format("  {} of {} will fail:\n", validation.failures.size(),
                        counted(validation.requests, "request"));
  for (size_t i = 0; i < std::min(validation.failures.size(), most_listed); ++i) {
    const Validation::Failure& failure = validation.failures[i];
    text += fmt::format("    {}{}: {}\n", escaped(failure.request),
                        failure.turns > 1 ? fmt::format(", turn {}", failure.turn + 1) : "",
                        escaped(failure.reason));
  }
  if (validation.failures.size() > most_listed)
    text += fmt::format("    and {} more\n", validation.failures.size() - most_listed);
  if (validation.cut_prompts > 0)
    text += fmt::format(
        "  {} longer than the model's length allows and will be cut "
        "(limits.over_length)\n",
        validation.cut_prompts == 1 ? "1 prompt is"
                                    : fmt::format("{} prompts are", validation.cut_prompts));
  for (const std::string& remark : validation.remarks) text += fmt::format("  {}\n", remark);
  return text;
}

}  // namespace pecia::run
