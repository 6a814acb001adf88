// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/layout.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/core/json.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/settle/batch_sample.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/settle/this_cluster.hpp"
#include "lib/simulation/choice.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::settle {
namespace {

using Json = nlohmann::ordered_json;

constexpr int most_ranks = 1024;
constexpr int64_t most_answer_tokens = 50'000;  // that are played in a layout: some 0.25 s

/// A part of the batch for which playing it in many layouts takes no long time. Requests that share a
/// beginning are in it together or not at all: otherwise the beginning would count for too much.
std::vector<size_t> part_of(const std::vector<schedule::SimulatedRequest>& all, int ranks) {
  const bool arrive = !all.empty() && all.front().arrival_s.has_value();
  size_t most = all.size();
  int64_t tokens = 0;
  for (const schedule::SimulatedRequest& request : all)
    for (const schedule::SimulatedTurn& turn : request.turns) tokens += turn.answer_tokens;
  // Replicas must have something to choose from, also where a request has many turns.
  const size_t fewest =
      std::min<size_t>(4 * static_cast<size_t>(ranks), requests_of_turns(all, 64 * int64_t{ranks}));
  if (tokens > most_answer_tokens) {
    const auto share = static_cast<double>(most_answer_tokens) / static_cast<double>(tokens);
    most = std::max(fewest, static_cast<size_t>(share * static_cast<double>(all.size())));
  }
  if (ranks > simulation::all_played_ranks) most = std::min(most, fewest);  // as passes are large
  return part_of_a_replica(all.size(), arrive, 1, most);
}

Json json_of(const simulation::LayoutForecast& plan, simulation::Aim aim) {
  const resources::Resources& resources = plan.resources;
  Json json{{"dp", resources.dp},
            {"pp", resources.pp},
            {"cp", resources.cp},
            {"sp", resources.sp},
            {"tp", resources.tp},
            {"ep", resources.ep},
            {"cp_elastic", resources.elastic},
            {"mode", resources::mode_name(resources)},
            {"max_batch_tokens", resources.max_batch_tokens},
            {"expected_s", plan.end ? Json(plan.seconds(aim)) : Json()},
            {"by_one_rank", plan.fidelity == simulation::Fidelity::one_rank}};
  if (plan.memory.why_not) json["why_not"] = *plan.memory.why_not;
  return json;
}

Json json_of(const simulation::Choice& choice) {
  constexpr size_t most = 8;
  Json json{{"by", "the cluster that is kept for such ranks"},
            {"aim", choice.aim == simulation::Aim::batch_end ? "batch end" : "mean first token"},
            {"chosen", json_of(choice.chosen, choice.aim)},
            {"by_rule", json_of(choice.by_rule, choice.aim)},
            {"alternatives", Json::array()},
            {"layouts", choice.counts.layouts},
            {"slower", choice.counts.slower},
            {"too_large", choice.counts.too_large},
            {"open", choice.counts.open}};
  for (size_t i = 0; i < std::min(most, choice.others.size()); ++i)
    json["alternatives"].push_back(json_of(choice.others[i], choice.aim));
  return json;
}

ChosenLayout layout_of(const simulation::Choice& choice, const job::Job& job) {
  ChosenLayout layout{choice.chosen.parallel};
  if (layout.parallel.ep == 1) layout.parallel.ep = job.parallel.ep;
  if (!choice.tokens_by_rule) layout.max_batch_tokens = choice.chosen.resources.max_batch_tokens;
  return layout;
}

LayoutChoice foreseen_on(const cluster_files::Cluster& cluster, const LayoutQuestion& question,
                         int ranks) {
  const job::Job& job = question.job;
  batch::Inputs inputs(job, question.config);
  if (schedule::runnable_groups(inputs, job.batch).empty())
    return {{}, "the layout is by rule: no request can run", {}};
  simulation::Batches batches(job, inputs, question.config,
                              [&](const auto& all) { return part_of(all, ranks); });
  const kernels::Backend& backend = *question.place.backend;
  simulation::PassCosts costs(
      {.job = job,
       .config = question.config,
       .cluster = cluster,
       .weights = resources::float_type(job, question.config),
       .kv = resources::kv_footprint(job, question.config, nullptr, {}).dtype,
       .traits = kernels::traits_of(backend),
       .threads = question.threads.count});
  const auto choice = simulation::choose(costs, batches, ranks);
  if (!choice) return {{}, "the layout is by rule: in none is the batch foreseen to fit", {}};
  return {layout_of(*choice, job), simulation::choice_text(*choice), json_of(*choice)};
}

/// Whether the layout leaves all that the job gives of it as it is.
bool keeps_what_is_given(const job::Job& job, const ChosenLayout& layout) {
  const auto keeps = [](const auto& given, const auto& then) { return !given || given == then; };
  const job::Job::Parallel &given = job.parallel, &then = layout.parallel;
  return keeps(given.dp, then.dp) && keeps(given.pp, then.pp) && keeps(given.sp, then.sp) &&
         keeps(given.tp, then.tp) && keeps(given.ep, then.ep) &&
         keeps(given.cp.degree, then.cp.degree) && (!given.cp.elastic || then.cp.elastic) &&
         keeps(given.prefill, then.prefill) && keeps(given.decode, then.decode) &&
         keeps(given.shift_threshold, then.shift_threshold) &&
         keeps(given.gather_threshold, then.gather_threshold) &&
         (!layout.max_batch_tokens || keeps(job.batch.max_batch_tokens, layout.max_batch_tokens));
}

/// The choice on its way to other ranks.
struct TravellingChoice {
  std::optional<ChosenLayout> layout;
  std::string why, expected;

  template <typename A>
  void visit(A& archive) {
    archive(layout), archive(why), archive(expected);
  }
};

/// Sends rank 0's choice to all.
LayoutChoice shared(const LayoutChoice& choice, comm::Communicator& world) {
  const auto all = comm::of_first(
      world, TravellingChoice{choice.layout, choice.why, json_text(choice.expected)});
  return {all.layout, all.why, parse_json<Json>(all.expected)};
}

}  // namespace

LayoutChoice choose_layout(const LayoutQuestion& question, comm::Communicator& world) {
  const job::Job::Parallel& parallel = question.job.parallel;
  const int ranks = world.size();
  if (ranks == 1) return {};
  if (const auto kept = measure::kept_layout(question.kept, ranks)) {
    if (kept->empty()) return {};
    const auto layout = ChosenLayout::of_settings(question.job, *kept);
    if (keeps_what_is_given(question.job, layout))
      return {layout, "the layout in which this run began", {}};
  }
  const size_t layouts = simulation::layouts_of(ranks, question.job,
                                                simulation::kept_degrees(parallel), question.config)
                             .size();
  if (layouts <= 1) return {};
  const bool grid_is_open = !parallel.dp || !parallel.pp || !parallel.sp || !parallel.tp;
  const auto by_rule = [&](const char* why) {
    return LayoutChoice{{}, grid_is_open ? fmt::format("the grid is by rule: {}", why) : "", {}};
  };
  if (question.place.on_gpu() && question.job.gpu_sharing != job::GpuSharing::no)
    return by_rule("ranks may share a GPU");
  if (tune::is_tuned(question.job)) return by_rule("a tuned file is of one layout");
  if (ranks > most_ranks) return by_rule("pecia plan --cluster compares layouts of more ranks");

  report::Recorder recorder;
  const attention::Compute compute{*question.place.device, *question.place.stream,
                                   *question.place.backend, recorder};
  const std::string key = measure::ranks_key(world, compute);
  std::optional<cluster_files::Cluster> cluster;
  if (world.rank() == 0) cluster = measure::kept_cluster(key);
  const bool is_kept = world.all_reduce_max(cluster ? 1 : 0) > 0;
  if (!is_kept && !grid_is_open) return {};
  if (!is_kept) {
    // In a group of its own, so that the report counts the run's traffic alone.
    const auto own = world.split(0, world.rank());
    cluster = measure_this_cluster(*own, question.places, question.job, question.place,
                                   question.threads.cache_bytes);
  }
  LayoutChoice choice;
  comm::together(world, [&] {
    if (world.rank() == 0) choice = foreseen_on(*cluster, question, ranks);
  });
  return shared(choice, world);
}

}  // namespace pecia::settle
