// SPDX-License-Identifier: Apache-2.0
#include "lib/run/tune.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/base/report/format.hpp"
#include "lib/base/report/log.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/files/prompts/prompts.hpp"
#include "lib/files/results/results.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/ranks/parallel/level_rule.hpp"
#include "lib/ranks/watch/watch.hpp"
#include "lib/run/finish.hpp"
#include "lib/run/run.hpp"
#include "lib/run/setup.hpp"
#include "lib/run/tune_runs.hpp"
#include "lib/run/tune_samples.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/simulation/tune/retrieval.hpp"
#include "lib/simulation/tune/tuned_file.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::run {
namespace {

constexpr int fewest_levels = 2, most_levels = 4;

/// What the runs have in common.
struct Frame {
  int cp = 1;  ///< of the job, where those of sp do not count
  resources::Resources resources;
  tune::Tuned facts;
};

void check_drops(const std::vector<double>& drops) {
  constexpr double highest = 0.95;
  for (const double drop : drops)
    if (!(drop >= 0 && drop <= highest))
      fail<InputError>("--drops has {}; a drop is a share from 0 to {}", drop, highest);
  if (std::set<double>(drops.begin(), drops.end()).size() != drops.size())
    fail<InputError>("--drops names a share twice; leave one out");
  if (std::ranges::none_of(drops, [](double drop) { return drop > 0; }))
    fail<InputError>("--drops has no share above 0, so there is nothing to compare; add one");
}

int64_t batch_tokens_of(const Setup& setup) {
  const resources::Resources& resources = setup.resources;
  return resources::resolve_batch_tokens(
      setup.job, setup.config, parallel::row_ranks(resources.degrees(), resources.prefill),
      resources.gpus);
}

/// Refuses prompts for which attention by levels says nothing.
void check_prompts(const Setup& setup, const TuneOptions& options, size_t settings) {
  const resources::Resources& resources = setup.resources;
  const batch::Inputs inputs(setup.job, setup.config);
  const int64_t from = *resources.levels_from();
  for (const batch::InputRequest& request : inputs.requests()) {
    const io::PromptRequest& prompt = inputs.prompt(request);
    if (prompt.turns.size() != 1)
      fail<InputError>("calibration: request {} has {} turns; make each text a request of one turn",
                       prompt.id, prompt.turns.size());
    if (const int64_t tokens = prompt.turns[0].num_tokens(); tokens < from)
      fail<InputError>(
          "calibration: prompt {} has {} tokens, and levels need {} new tokens on each of {} "
          "ranks, {} together; take longer texts, or fewer ranks of cp, sp and tp",
          prompt.id, tokens, parallel::SparseSetting::least_rows, resources.level_parts(), from);
    if (const int64_t tokens = prompt.turns[0].num_tokens(); tokens < tune::least_retrieval_tokens)
      fail<InputError>(
          "calibration: prompt {} has {} tokens, and a question of retrieval needs {}, so that its "
          "passage of {} lies in the first three quarters; take longer texts",
          prompt.id, tokens, tune::least_retrieval_tokens, tune::passage_tokens);
    if (inputs.kept_tokens(request, 0) < prompt.turns[0].num_tokens() ||
        prompt.turns[0].num_tokens() >= setup.config.max_positions)
      fail<InputError>("calibration: prompt {} has {} tokens, and the model's length is {}; cut it",
                       prompt.id, prompt.turns[0].num_tokens(), setup.config.max_positions);
  }
  const int64_t batch_tokens = batch_tokens_of(setup);
  if (batch_tokens < from)
    fail<InputError>(
        "batch.max_batch_tokens is {}, and levels need prompts' chunks of {} tokens; use at least "
        "{}, or auto",
        batch_tokens, from, from);
  if (inputs.requests().size() < tune::fewest_prompts)
    fail<InputError>(
        "{} has one prompt, and nothing says then what another one loses; give two or more",
        options.calibration.string());
  const size_t samples = inputs.requests().size() * settings;
  if (samples < tune::fewest_samples)
    fail<InputError>(
        "{} prompts with {} settings are {} samples, and models need {}; give more --drops, or "
        "more prompts in {}",
        inputs.requests().size(), settings, samples, tune::fewest_samples,
        options.calibration.string());
}

/// The numbers of levels that the ranks' places allow, from two on; of these only the wanted one.
std::vector<tune::LevelChoice> level_choices(const tune::LevelsHere& levels_here,
                                             parallel::Geometry geometry,
                                             std::optional<int> wanted) {
  std::vector<tune::LevelChoice> choices;
  for (int count = fewest_levels; count <= most_levels; ++count) {
    if (wanted && count != *wanted) continue;
    if (parallel::Levels levels = levels_here(count); levels.count() == count)
      choices.emplace_back(std::move(levels), geometry);
  }
  if (choices.empty())
    fail<InputError>(
        "attention.levels: {} is nothing to tune on these ranks, whose places allow other numbers "
        "from 2 on; use levels: auto",
        wanted.value_or(0));
  return choices;
}

/// The deals of the option, which has even among them: shares are dealt out by numbers of such a run.
std::vector<tune::Deal> deals_named(const std::string& names) {
  std::vector<tune::Deal> deals;
  std::istringstream listed(names);
  for (std::string word; std::getline(listed, word, ',');) {
    const auto deal = tune::deal_of(word);
    if (!deal) fail<InputError>("--deals has '{}'; a deal is even, spread or mass", word);
    deals.push_back(*deal);
  }
  if (std::set<tune::Deal>(deals.begin(), deals.end()).size() != deals.size())
    fail<InputError>("--deals names a deal twice; leave one out");
  if (std::ranges::find(deals, tune::Deal::even) == deals.end())
    fail<InputError>("--deals lacks even, beside which the others are measured; add it");
  return deals;
}

/// Even first. Nested levels keep the same tokens as keys and as queries, of all heads alike.
std::vector<tune::Deal> deals_of(const TuneOptions& options, const tune::Tuned& facts) {
  std::vector<tune::Deal> deals = deals_named(options.deals);
  if (deals.size() > 1 && facts.geometry == parallel::Geometry::nested)
    fail<InputError>(
        "--deals {} with attention.geometry: nested, which keeps the same tokens for all heads; "
        "use --deals even, or geometry: disjoint",
        options.deals);
  std::ranges::sort(deals);
  return deals;
}

/// The first is dense. Settings take the numbers of micro-partitions by turns, so that times tell of
/// all of them.
std::vector<std::optional<tune::Setting>> settings_of(const TuneOptions& options,
                                                      const tune::Tuned& facts) {
  std::vector<std::optional<tune::Setting>> settings{{}};
  size_t turn = 0;
  for (const tune::Deal deal : deals_of(options, facts))
    for (const tune::LevelChoice& choice : facts.levels)
      for (const double drop : options.drops)
        if (drop > 0 || deal == tune::Deal::even)
          settings.push_back(tune::Setting{
              drop, choice.count(), {facts.micros[turn++ % facts.micros.size()]}, deal});
  return settings;
}

/// Sets a run up without reading weights, and checks whether tuning makes sense with it.
Frame frame_of(const TuneOptions& options, comm::Communicator& world) {
  const TuneRun any{tune::Setting{0, fewest_levels}, false};
  const RunOptions of_run{.job_file = options.job_file,
                          .overrides = overrides_of(options, any, 0, work_folder(options)),
                          .by_rule = true,
                          .quiet = true};
  const Setup setup = set_up(of_run, world);
  const resources::Resources& resources = setup.resources;
  if (resources.level_parts() < 2)
    fail<InputError>(
        "tune needs two or more ranks that share a prompt, by parallel.cp, sp or tp: levels join "
        "their parts; start more ranks, or use a smaller dp");
  const int64_t layers = setup.config.num_layers(model::MixerKind::attention);
  if (tune::sparse_layers(layers) == 0)
    fail<InputError>(
        "tune: the model has {} layers of attention, and sparse attention drops nothing in the "
        "first and the last one; there is nothing to tune",
        layers);
  if (setup.job.attention.first_tokens)
    fail<InputError>("tune measures with attention.first_tokens: auto; leave that key out");
  Frame frame;
  frame.cp = resources.cp / setup.job.parallel.sp.value_or(1);
  tune::Tuned& facts = frame.facts;
  facts.version = build_info().version;
  facts.model_path = setup.job.model.path.string();
  facts.config_sha256 = setup.config.sha256;
  facts.cp = resources.cp, facts.tp = resources.tp;
  facts.geometry = setup.job.attention.geometry;
  // Every replica has its own places, and the results are those of the first one.
  std::vector<comm::RackServerGpu> first(setup.ranks.places.begin(),
                                         setup.ranks.places.begin() + setup.ranks.replica->size());
  const job::Job::Attention wanted =
      job::read_job(options.job_file, options.overrides).attention;  // as the user has it
  facts.levels = level_choices(tune::levels_by_place(resources.level_places(first)), facts.geometry,
                               wanted.levels);
  if (wanted.pipeline && wanted.pipeline->size() > 1)
    fail<InputError>(
        "attention.pipeline: tune chooses a number for each level by itself; give auto, or one "
        "number for all levels, and not the list {}",
        parallel::to_string(*wanted.pipeline));
  if (wanted.pipeline)
    facts.micros = *wanted.pipeline;
  else if (resources.cp == 1)
    facts.micros = {1};  // no tokens travel for levels of TP
  else
    facts.micros.assign(std::begin(parallel::micro_choices), std::end(parallel::micro_choices));
  frame.resources = resources;
  frame.resources.kv_dtype =
      resources::kv_footprint(setup.job, setup.config, nullptr, resources).dtype;
  frame.resources.wire = resources::wire_of(
      setup.job, setup.place.backend->operand_type(resources::held_dtype(setup.job, setup.config)));
  facts.facts.layers = layers;
  facts.facts.pass_tokens = batch_tokens_of(setup);
  facts.facts.shape = schedule::ring_shape(setup.config, frame.resources);
  if (resources.cp == 1) facts.facts.shape.num_heads *= resources.tp;
  comm::together(world, [&] {
    if (setup.is_root()) check_prompts(setup, options, settings_of(options, facts).size() - 1);
  });
  return frame;
}

/// Each attention has a run that is judged, and one for its time alone in every round. Rounds go to
/// and fro, so that a machine that changes its speed meanwhile favours no setting.
std::vector<TuneRun> runs_of(const TuneOptions& options, const tune::Tuned& facts) {
  std::vector<std::optional<tune::Setting>> settings = settings_of(options, facts);
  std::vector<TuneRun> runs;
  for (const auto& setting : settings)
    for (const bool judged : {false, true}) runs.push_back({setting, judged});
  // The numbers by which shares are dealt out come from the first run that drops any.
  if (deals_of(options, facts).size() > 1)
    std::ranges::find_if(runs, [](const TuneRun& run) {
      return run.judged && run.setting && run.setting->drop > 0;
    })->counts_shares = true;
  for (int round = 2; round <= options.rounds; ++round) {
    std::ranges::reverse(settings);
    for (const auto& setting : settings) runs.push_back({setting, false});
  }
  return runs;
}

/// Writes a question of retrieval for each prompt.
std::vector<io::PromptText> write_questions(const TuneOptions& options) {
  const io::PromptShard shard(options.calibration);
  std::vector<io::PromptText> questions;
  for (const io::PromptRequest& request : shard.requests())
    questions.push_back(
        {request.id + " (retrieval)",
         tune::with_passage_again(questions.size(), shard.tokens(request.turns[0]))});
  std::filesystem::create_directories(work_folder(options));
  io::write_prompts(questions_file(options), questions);
  return questions;
}

/// The rates that a run measured when it started.
parallel::RingRates rates_of(const std::filesystem::path& folder,
                             const resources::Resources& resources) {
  const std::string text =
      io::ResultsFile(folder / "results.h5", io::Access::read).layout().measured;
  const auto measured = measure::parse_measured(text, resources);
  PECIA_CHECK(measured && measured->ring.flops > 0, "{} has no rates", folder.string());
  return measured->ring;
}

std::string in_words(const TuneRun& run) {
  std::string text = "dense";
  if (run.setting) text = to_string(*run.setting);
  return run.judged ? text : text + ", for its time";
}

/// Removes what the runs left, and their folder if nothing else is in it.
void remove_runs(const TuneOptions& options, const std::vector<TuneRun>& runs) {
  std::error_code stays;  // a leftover harms nobody
  for (const TuneRun& run : runs) std::filesystem::remove_all(folder_of(options, run), stays);
  std::filesystem::remove(questions_file(options), stays);
  std::filesystem::remove(work_folder(options), stays);
}

}  // namespace

TuneOutcome tune_job(const TuneOptions& options, comm::Communicator& world,
                     const std::function<void()>& end_job,
                     const std::shared_ptr<Activity>& activity) {
  comm::together(world, [&] { check_drops(options.drops), deals_named(options.deals); });
  Frame frame = frame_of(options, world);
  const auto log = report::make_logger(world.rank(), world.size());
  std::vector<TuneRun> runs = runs_of(options, frame.facts);
  const bool first = world.rank() == 0;
  std::vector<io::PromptText> questions;
  comm::together(world, [&] {
    if (first) questions = write_questions(options);
  });
  log->info(
      "{} runs of {} prompts: each attention is timed {}, and once it has likelihoods and a "
      "question of retrieval for each prompt",
      runs.size(), questions.size(),
      options.rounds == 1 ? "once" : fmt::format("{} times", options.rounds));
  // Passes over the prompts, which take about the same time.
  const auto passes_of = [](const TuneRun& run) { return run.judged ? 2 : 1; };
  int passes_left = 0, passes_done = 0;
  for (const TuneRun& run : runs) passes_left += passes_of(run);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::vector<PromptResult>> results;
  std::string shares;
  for (TuneRun& run : runs) {
    const size_t number = results.size() + 1;
    if (run.setting && run.setting->deal != tune::Deal::even)
      run.layers = frame.facts.facts.deals->of(run.setting->deal, run.setting->drop);
    const std::filesystem::path folder = folder_of(options, run);
    const RunOptions of_run{.job_file = options.job_file,
                            .overrides = overrides_of(options, run, frame.cp, folder),
                            .fresh = true,
                            .by_rule = true,
                            .quiet = true,
                            .counts_shares = run.counts_shares};
    const auto begin = std::chrono::steady_clock::now();
    int code = 0;
    {
      watch::Watch watch(end_job, activity);
      report::Startup startup("tune", report::unix_time());
      code = run_job(of_run, world, watch, startup);
      world.barrier();  // nobody watches a rank that has left
    }
    if (code == exit_drained) {
      log->info("stopped by a signal after {} of {} runs; the same command begins anew", number - 1,
                runs.size());
      return {exit_drained, {}};
    }
    comm::together(world, [&] {
      results.emplace_back();
      if (!first) return;
      results.back() = read_results(folder, run.judged);
      if (run.setting && frame.resources.cp > 1)
        frame.facts.facts.rates = rates_of(folder, frame.resources);
      if (run.counts_shares) shares = shares_text(folder);
    });
    if (run.counts_shares) {
      frame.facts.layer_tokens = parse_shares(comm::of_first(world, shares));
      frame.facts.make_deals(options.drops);
    }
    const auto end = std::chrono::steady_clock::now();
    const std::chrono::duration<double> took = end - begin, all = end - start;
    passes_left -= passes_of(run), passes_done += passes_of(run);
    const double left_s = all.count() * passes_left / passes_done;
    log->info("run {} of {}, {}: {:.1f} s{}", number, runs.size(), in_words(run), took.count(),
              left_s > 0 ? fmt::format("; about {} left", report::format_duration(left_s)) : "");
  }
  TuneOutcome outcome;
  comm::together(world, [&] {
    if (!first) return;
    outcome.tuned = frame.facts;
    add_samples(*outcome.tuned, runs, results, questions);
    tune::fit(*outcome.tuned);
    report::write_atomically(options.output, json_text(tune::to_json(*outcome.tuned), 2) + "\n");
    remove_runs(options, runs);
  });
  return outcome;
}

}  // namespace pecia::run
