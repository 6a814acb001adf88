// SPDX-License-Identifier: Apache-2.0
/// Times decode steps of batches of sequences with long contexts: tokens/s and share of the floor.
/// The floor is the longer of bytes / (measured read bandwidth) and FLOPs / (measured FLOP/s).
/// Contexts are filled with random keys and values, so no prefill is needed. --check compares the
/// log-probabilities of a few steps with the results of one rank alone, which decodes the sequences
/// one by one with an fp32 cache. On a GPU a batch is cut to what fits its memory, and graphs are
/// counted.

#include <algorithm>
#include <numeric>

#include "apps/bench_support/agreement.hpp"
#include "apps/bench_support/floors.hpp"
#include "apps/bench_support/held_out.hpp"
#include "apps/bench_support/model_options.hpp"
#include "apps/bench_support/work.hpp"
#include "apps/command_line/options.hpp"
#include "lib/base/core/random.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/engine/schedule/elastic_degree.hpp"
#include "lib/work/resources/footprint.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int check_steps = 3;
// After random keys and values a trained model magnifies rounding. On SmolLM2-135M the
// log-probabilities of the reference and the CPU backend, on one rank each, differ by 1.5e-3 with
// an fp32 cache and by 0.4 with bf16.
constexpr double check_tolerance = 1e-2;
constexpr DType check_kv_dtype = DType::fp32;

struct Options {
  ModelOptions model;
  std::vector<int64_t> contexts = {512, 8192}, batches = {1, 8, 32};
  int steps = 16;
  bool mixed = false;
  std::string ring = "pass_q";
  std::vector<int64_t> masters = {0};
};

void add_options(CLI::App& app, Options& options) {
  add_model_options(app, options.model);
  command_line::add_option(app, {.name = "--contexts",
                                 .into = &options.contexts,
                                 .help = "Tokens in each sequence's cache",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app, {.name = "--batches",
                                 .into = &options.batches,
                                 .help = "Numbers of sequences",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
  command_line::add_option(app,
                           {.name = "--mixed",
                            .into = &options.mixed,
                            .help = "Random lengths, from half of --contexts to three halves"});
  command_line::add_option(app, {.name = "--ring",
                                 .into = &options.ring,
                                 .help = "What travels between context-parallel ranks",
                                 .show_default = true,
                                 .among = {"pass_q", "broadcast_q", "pass_kv"}});
  command_line::add_option(app, {.name = "--masters",
                                 .into = &options.masters,
                                 .help = "Instances that have rows, with broadcast_q; 0: all",
                                 .show_default = true,
                                 .sign = command_line::Sign::not_negative});
  command_line::add_option(app, {.name = "--steps",
                                 .into = &options.steps,
                                 .help = "Decode steps of a run",
                                 .show_default = true,
                                 .sign = command_line::Sign::positive});
}

struct Case {
  int64_t context;
  std::vector<int64_t> lengths;  ///< of each sequence's cache
  int64_t masters = 0;           ///< 0: all instances

  auto batch() const { return static_cast<int64_t>(lengths.size()); }
  /// Tokens of all caches.
  int64_t cached() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
};

std::vector<int64_t> lengths_of(int64_t context, int64_t batch, bool mixed, uint64_t seed) {
  std::vector<int64_t> lengths(batch, context);
  if (!mixed) return lengths;
  for (int64_t i = 0; i < batch; ++i)
    lengths[i] =
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(context) *
                                                  (0.5 + uniform(seed, static_cast<uint64_t>(i)))));
  return lengths;
}

std::vector<parallel::SequenceId> filled(Replica& replica, const Case& one, int64_t first,
                                         int64_t steps, uint64_t seed) {
  std::vector<parallel::SequenceId> sequences(one.batch());
  std::iota(sequences.begin(), sequences.end(), first);
  for (size_t i = 0; i < sequences.size(); ++i)
    replica.fill(sequences[i], one.lengths[i], steps, seed);
  return sequences;
}

/// Log-probabilities of several steps in passes of `per_pass` sequences. The tokens are given, not
/// sampled, so that a near tie cannot lead two layouts to different texts. On rank 0.
std::vector<float> forced_steps(Replica& replica, const Case& one, int64_t per_pass, int64_t vocab,
                                uint64_t seed) {
  const auto sequences = filled(replica, one, 0, check_steps, seed);
  std::vector<float> logprobs;
  for (int step = 0; step < check_steps; ++step) {
    const auto tokens = random_tokens(one.batch(), vocab, seed + static_cast<uint64_t>(step));
    for (int64_t begin = 0; begin < one.batch(); begin += per_pass) {
      const Answer answer = replica.decode(std::span(sequences).subspan(begin, per_pass),
                                           std::span(tokens).subspan(begin, per_pass));
      logprobs.insert(logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
    }
  }
  return logprobs;
}

class Decode {
 public:
  Decode(const Session& session, const Options& options, const LoadedModel& model)
      : world_(session.world),
        session_(session),
        options_(options),
        model_(model),
        settings_(replica_settings(options.model, model, session.options.threads, world_.size())),
        results_(session,
                 fmt::format("{}, weights {}, KV {}, {} steps a run, {} lengths, {}, {}",
                             options.model.model.filename().string(), options.model.dtype,
                             name_of(settings_.kv_dtype), options.steps,
                             options.mixed ? "mixed" : "equal", options.ring,
                             grid(options.model, world_.size())),
                 Json{{"model", options.model.model.filename().string()},
                      {"grid", grid(options.model, world_.size())},
                      {"ring", options.ring},
                      {"dtype", options.model.dtype},
                      {"compute", options.model.compute},
                      {"kv_dtype", std::string(name_of(settings_.kv_dtype))},
                      {"lengths", options.mixed ? "mixed" : "equal"},
                      {"steps", options.steps}}) {}

  void run() {
    if (options_.ring == "broadcast_q")
      settings_.decode_ring = parallel::AttentionExchange::broadcast_q;
    if (options_.ring == "pass_kv") settings_.decode_ring = parallel::AttentionExchange::pass_kv;
    check_masters();
    if (session_.options.check) refuse_check_of_codes(options_.model);
    const Floors floors = [&] {
      const resources::ComputePlace place = make_place(settings_, model_, world_);
      results_.on_device(place.device->info());
      return measure_floors(world_, place, options_.model.product_type());
    }();
    results_.line(
        fmt::format("floor of all ranks: reads {:.1f} GB/s, matrix product {:.1f} GFLOP/s",
                    floors.read_bandwidth * 1e-9, floors.flops * 1e-9));
    const schedule::PassTimes expected =
        expected_times(model_, settings_, floors, world_.size(),
                       resources::computes_on_gpus(settings_.job, world_));
    times_.emplace(expected, schedule::TeamCosts{.bytes_per_second = 1e9}, instances());
    results_.columns({"context", "batch", "masters", "ms/step", "min ms", "max ms", "tok/s",
                      "MB/step", "GFLOP/step", "bound by", "% of floor", "B/token/layer",
                      "by phantom", "exposed comm %", "idle %", "rule"});
    for (const int64_t context : options_.contexts)
      for (const int64_t batch : options_.batches) {
        Steps steps;
        const std::vector<int64_t> lengths = fitting_lengths(context, batch);
        if (lengths.empty()) continue;
        for (const int64_t masters : options_.masters) {
          const Case one{context, lengths, masters > 0 ? masters : int64_t{instances()}};
          if (masters > one.batch()) continue;
          steps.push_back({one, measure(one, floors)});
          if (session_.options.check) check(one);
        }
        compare_masters(steps);
      }
    print_masters();
    print_held_out(results_, timed_, expected.decode);
  }

 private:
  using Steps = std::vector<std::pair<Case, double>>;  ///< and the seconds of a step

  int instances() const { return world_.size() / (settings_.sp * settings_.tp); }

  int64_t all_steps() const { return int64_t{session_.options.runs + 1} * options_.steps; }

  int64_t slots_of(const ReplicaSettings& settings, const std::vector<int64_t>& lengths) const {
    int64_t slots = 0;
    for (const int64_t length : lengths)
      slots += Replica::slots(settings, world_.size(), length, all_steps());
    return slots;
  }

  /// The lengths of the sequences, of which a GPU's memory may leave out the last.
  std::vector<int64_t> fitting_lengths(int64_t context, int64_t batch) const {
    std::vector<int64_t> lengths = lengths_of(context, batch, options_.mixed, options_.model.seed);
    const resources::ComputePlace place = make_place(settings_, model_, world_);
    if (!place.on_gpu()) return lengths;
    // Work memory of a pass of few rows, and what libraries keep, take less than a tenth.
    constexpr double share_for_caches = 0.9;
    const int64_t weights =
        resources::weight_footprint(options_.model.job(), model_.config, place.on_gpu()).bytes /
        settings_.tp;
    const auto room = static_cast<int64_t>(
        share_for_caches * static_cast<double>(place.device->memory().free_bytes - weights));
    const int64_t slot_bytes = model_.config.kv_bytes_per_token(settings_.kv_dtype) /
                               (int64_t{settings_.sp} * settings_.tp);
    std::vector<int64_t> bytes;
    for (const int64_t length : lengths)
      bytes.push_back(slots_of(settings_, {length}) * slot_bytes);
    const int64_t count = -world_.all_reduce_max(-sequences_that_fit(bytes, room));
    if (count < batch)
      results_.line(fmt::format("context {}, batch {}: the GPU's memory has room for {} sequences",
                                context, batch, count));
    lengths.resize(count);
    return lengths;
  }

  void check_masters() const {
    for (const int64_t masters : options_.masters) {
      if (masters > instances())
        throw InputError(fmt::format("--masters {}: there are {} instances", masters, instances()));
      if (masters > 0 && masters < instances() && options_.ring != "broadcast_q")
        throw InputError("--masters: instances without rows need --ring broadcast_q");
    }
  }

  /// Says how many masters a run would choose, by rates fitted to all steps so far, and how long a
  /// step with them takes beside the fastest.
  void compare_masters(const Steps& steps) {
    for (const auto& [one, seconds] : steps) {
      const schedule::PassWork busiest{
          1, static_cast<double>((one.batch() + one.masters - 1) / one.masters),
          static_cast<double>(one.cached()) / instances()};
      times_->add(instances(), schedule::PassKind::decode, busiest, seconds);
      timed_.push_back({busiest, seconds});
    }
    compared_.push_back(steps);
  }

  void print_masters() {
    for (const Steps& steps : compared_) {
      if (steps.size() < 2) continue;
      const auto seconds_with = [&](int64_t masters) {
        const auto found =
            std::ranges::find(steps, masters, [](const auto& step) { return step.first.masters; });
        return found == steps.end() ? std::nullopt : std::optional(found->second);
      };
      const Case& first = steps.front().first;
      const schedule::Masters chosen =
          schedule::masters(*times_, instances(), first.batch(), first.cached());
      const double best =
          std::ranges::min_element(steps, {}, [](const auto& step) { return step.second; })->second;
      const std::optional<double> seconds = seconds_with(chosen.count);
      results_.line(
          fmt::format("context {}, batch {}: a run would choose {} masters, {}", first.context,
                      first.batch(), chosen.count,
                      seconds ? fmt::format("{:.3f} of the fastest step here", *seconds / best)
                              : "which was not measured"));
      results_.write({{"context", first.context},
                      {"batch", first.batch()},
                      {"chosen_masters", chosen.count},
                      {"chosen_over_fastest", seconds ? Json(*seconds / best) : Json()}});
    }
  }

  /// Returns the median seconds of a step.
  double measure(const Case& one, const Floors& floors) {
    const int runs = session_.options.runs;
    ReplicaSettings settings = settings_;
    settings.masters = static_cast<int>(one.masters);
    settings.kv_tokens = slots_of(settings, one.lengths);
    Replica replica(world_, model_, settings);
    const std::string rule = by_rule(replica, one.batch());
    const auto sequences = filled(replica, one, 0, all_steps(), options_.model.seed);
    std::vector<int32_t> tokens =
        random_tokens(one.batch(), model_.config.vocab, options_.model.seed);
    const auto once = [&] {
      for (int step = 0; step < options_.steps; ++step)
        tokens = replica.decode(sequences, tokens).tokens;
    };
    once();
    const report::Totals totals = replica.recorder().totals();
    const std::vector<report::Stage> stages = replica.recorder().stages();
    const Sent before = sent_by_all(world_, replica);
    const device::GraphCounts graphs_before = graphs_of(replica);
    std::vector<double> seconds = timed_runs(world_, runs, once);
    const device::GraphCounts graphs = graphs_of(replica);

    const Sent sent = sent_by_all(world_, replica) - before;
    const auto per_token_and_layer =
        static_cast<double>(one.batch() * runs * options_.steps * model_.config.layers);
    const Shares shares = shares_since(world_, totals, replica.recorder().totals(),
                                       std::accumulate(seconds.begin(), seconds.end(), 0.0));
    for (double& one_run : seconds) one_run /= options_.steps;
    const Spread step_s = spread(seconds);
    const int64_t cached = one.cached() / one.batch() + all_steps() -
                           options_.steps * runs / 2;  // by a sequence, at mid-run
    const double bytes =
        decode_bytes(model_.config, model_.weights, one.batch(), cached, settings.kv_dtype,
                     world_.size(), resources::quantize_of(options_.model.job()));
    const double flops = decode_flops(model_.config, one.batch(), cached);
    const double bytes_s = bytes / floors.read_bandwidth, flops_s = flops / floors.flops;
    const double share = std::max(bytes_s, flops_s) / step_s.median;
    const char* bound = bytes_s >= flops_s ? "memory" : "compute";
    const double tokens_per_s = static_cast<double>(one.batch()) / step_s.median;
    const auto taken = stage_seconds(stages, replica.recorder().stages());

    results_.row({std::to_string(one.context), std::to_string(one.batch()),
                  std::to_string(one.masters), fmt::format("{:.3f}", step_s.median * 1e3),
                  fmt::format("{:.3f}", step_s.min * 1e3), fmt::format("{:.3f}", step_s.max * 1e3),
                  fmt::format("{:.1f}", tokens_per_s), fmt::format("{:.1f}", bytes * 1e-6),
                  fmt::format("{:.2f}", flops * 1e-9), bound, fmt::format("{:.1f}", 100 * share),
                  fmt::format("{:.1f}", sent.in_layers() / per_token_and_layer),
                  fmt::format("{:.1f}", sent.expected_in_layers / per_token_and_layer),
                  fmt::format("{:.1f}", 100 * shares.exposed_comm),
                  fmt::format("{:.1f}", 100 * shares.idle), rule});
    if (options_.model.stages) print_stages(results_, taken);
    const int64_t launched = graphs.launched - graphs_before.launched;
    const int64_t made = graphs.made - graphs_before.made;
    const int64_t piecemeal = graphs.piecemeal - graphs_before.piecemeal;
    const int64_t joint = graphs.joint - graphs_before.joint;
    const int64_t disagreed = graphs.disagreed - graphs_before.disagreed;
    if (launched + piecemeal > 0 || !graphs.why_not.empty())
      results_.line(
          fmt::format("    graphs: {} launched, {} of them made for it, {} segments piece "
                      "by piece{}",
                      launched, made, piecemeal,
                      graphs.why_not.empty() ? "" : "; then none: " + graphs.why_not));
    if (joint + disagreed > 0 || !graphs.why_not_joint.empty())
      results_.line(fmt::format(
          "    with sums over ranks: {} of these graphs; ranks disagreed on {} segments{}", joint,
          disagreed,
          graphs.why_not_joint.empty() ? ""
                                       : "; then no graph with sums: " + graphs.why_not_joint));
    results_.write({{"context", one.context},
                    {"batch", one.batch()},
                    {"graphs_launched", launched},
                    {"graphs_made", made},
                    {"graphs_piecemeal", piecemeal},
                    {"graphs_joint", joint},
                    {"graphs_disagreed", disagreed},
                    {"why_no_graphs", graphs.why_not},
                    {"why_no_joint_graphs", graphs.why_not_joint},
                    {"masters", one.masters},
                    {"rule", rule},
                    {"step_seconds", to_json(step_s)},
                    {"tokens_per_s", tokens_per_s},
                    {"bytes_per_step", bytes},
                    {"flops_per_step", flops},
                    {"read_bandwidth", floors.read_bandwidth},
                    {"product_flops", floors.flops},
                    {"bound_by", bound},
                    {"share_of_floor", share},
                    {"sent_bytes_of_layers", sent.in_layers()},
                    {"expected_bytes_of_layers", sent.expected_in_layers},
                    {"layers", model_.config.layers},
                    {"exposed_comm_share", shares.exposed_comm},
                    {"idle_share", shares.idle},
                    {"stages_s_of_rank_0", taken}});
    if (session_.options.check) check_together(world_, sent.problem(settings_));
    return step_s.median;
  }

  /// Of nothing on a CPU, which has no graphs.
  static device::GraphCounts graphs_of(const Replica& replica) {
    const auto* const stream = dynamic_cast<const device::GraphStream*>(&replica.compute().stream);
    return stream == nullptr ? device::GraphCounts{} : stream->graph_counts();
  }

  /// The configuration that the rule chooses for a step of `batch` tokens, by rates measured now.
  std::string by_rule(Replica& replica, int64_t batch) const {
    if (options_.model.sp == 1) return "";
    return replica.measure_shift_threshold(batch) == batch ? "shift" : "base";
  }

  void check(const Case& one) {
    ReplicaSettings settings = settings_;
    settings.logprobs = -1;
    settings.kv_dtype = check_kv_dtype;
    const int64_t vocab = model_.config.vocab;
    const auto steps_on = [&](comm::Communicator& ring, int64_t per_pass) {
      if (ring.size() == 1) {
        settings.sp = settings.tp = settings.ep = 1;
        settings.sharding = parallel::Sharding::base;
      }
      settings.masters = ring.size() == 1 ? 0 : static_cast<int>(one.masters);
      settings.kv_tokens = 0;
      for (const int64_t length : one.lengths)
        settings.kv_tokens += Replica::slots(settings, ring.size(), length, check_steps);
      Replica replica(ring, model_, settings);
      return forced_steps(replica, one, per_pass, vocab, options_.model.seed);
    };
    const std::vector<float> ours = steps_on(world_, one.batch());
    std::string problem;
    if (world_.rank() == 0) {
      const auto alone = comm::make_null_communicator();
      problem = difference(ours, steps_on(*alone, 1), check_tolerance);
      if (!problem.empty())
        problem = fmt::format("log-probabilities of {} sequences after {} tokens: {}", one.batch(),
                              one.context, problem);
    }
    check_together(world_, problem);
    results_.line(fmt::format("    checked: {} steps give what one rank alone gives", check_steps));
  }

  comm::Communicator& world_;
  const Session& session_;
  const Options& options_;
  const LoadedModel& model_;
  ReplicaSettings settings_;
  Results results_;
  std::optional<schedule::TeamTimes> times_;  ///< of all instances together
  std::vector<Steps> compared_;
  std::vector<TimedWork> timed_;
};

}  // namespace
}  // namespace pecia::bench

int main(int argc, char** argv) {
  using namespace pecia::bench;
  Options options;
  return run_benchmark({"bench_decode", "Times decode steps of a model on a ring of ranks",
                        [&](CLI::App& app) { add_options(app, options); },
                        [&](const Session& session) {
                          const auto model = load_model(session.world, options.model.model);
                          Decode(session, options, *model).run();
                        }},
                       argc, argv);
}
