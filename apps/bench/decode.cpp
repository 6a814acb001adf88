// SPDX-License-Identifier: Apache-2.0
/// Times decode steps of batches of sequences with long contexts: tokens/s and share of the floor.
/// The floor is the longer of bytes / (measured read bandwidth) and FLOPs / (measured FLOP/s).
/// Contexts are filled with random keys and values, so no prefill is needed. --check compares the
/// log-probabilities of a few steps with the results of one rank alone, which decodes the sequences
/// one by one with an fp32 cache. On a GPU a batch is cut to what fits its memory, and graphs are
/// counted.

#include <algorithm>
#include <numeric>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/held_out.hpp"
#include "apps/bench/support/model_bench.hpp"
#include "apps/bench/support/pass_totals.hpp"
#include "apps/bench/support/work.hpp"
#include "lib/base/core/random.hpp"
#include "lib/base/device/graph_stream.hpp"
#include "lib/engine/schedule/elastic_degree.hpp"
#include "lib/work/resources/footprint.hpp"

namespace pecia::bench {
namespace {

constexpr int check_steps = 3;

struct DecodeOptions {
  ModelOptions model;
  std::vector<int64_t> contexts = {512, 8192}, batches = {1, 8, 32};
  int steps = 16;
  bool mixed = false;
  std::string ring = "pass_q";
  std::vector<int64_t> masters = {0};
};

struct DecodeCase {
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

std::vector<parallel::SequenceId> filled(Replica& replica, const DecodeCase& one, int64_t steps,
                                         uint64_t seed) {
  std::vector<parallel::SequenceId> sequences(one.batch());
  std::iota(sequences.begin(), sequences.end(), 0);
  for (size_t i = 0; i < sequences.size(); ++i)
    replica.fill(sequences[i], one.lengths[i], steps, seed);
  return sequences;
}

class Decode : ModelBench {
 public:
  Decode(const Session& session, const DecodeOptions& options)
      : ModelBench(session, options.model), options_(options) {
    if (options_.ring == "broadcast_q")
      settings_.decode_ring = parallel::AttentionExchange::broadcast_q;
    if (options_.ring == "pass_kv") settings_.decode_ring = parallel::AttentionExchange::pass_kv;
    check_masters();
  }

  void run() {
    const char* lengths_are = options_.mixed ? "mixed" : "equal";
    begin(fmt::format("{} steps a run, {} lengths, {}", options_.steps, lengths_are, options_.ring),
          {{"ring", options_.ring}, {"lengths", lengths_are}, {"steps", options_.steps}});
    const schedule::PassTimes expected = expected_times(model_, settings_, floors_);
    times_.emplace(expected, schedule::TeamCosts{.bytes_per_second = 1e9}, instances());
    results_.columns(
        "context|batch|masters|ms/step|min ms|max ms|tok/s|MB/step|GFLOP/step|bound by|% of "
        "floor|B/token/layer|by phantom|exposed comm %|idle %|rule");
    for (const int64_t context : options_.contexts)
      for (const int64_t batch : options_.batches) {
        Steps steps;
        const std::vector<int64_t> lengths = fitting_lengths(context, batch);
        if (lengths.empty()) continue;
        for (const int64_t masters : options_.masters) {
          const DecodeCase one{context, lengths, masters > 0 ? masters : int64_t{instances()}};
          if (masters > one.batch()) continue;
          steps.push_back({one, measure(one)});
          if (session_.options.check) check(one);
        }
        compare_masters(steps);
      }
    print_masters();
    print_held_out(results_, timed_, expected.decode);
  }

 private:
  using Steps = std::vector<std::pair<DecodeCase, double>>;  ///< and the seconds of a step

  int64_t all_steps() const { return int64_t{session_.options.runs + 1} * options_.steps; }

  static int64_t slots_of(const ReplicaSettings& settings, const std::vector<int64_t>& lengths,
                          int64_t steps) {
    int64_t slots = 0;
    for (const int64_t length : lengths) slots += Replica::slots(settings, length, steps);
    return slots;
  }

  /// The lengths of the sequences, of which a GPU's memory may leave out the last.
  std::vector<int64_t> fitting_lengths(int64_t context, int64_t batch) const {
    std::vector<int64_t> lengths = lengths_of(context, batch, options_.mixed, options_.model.seed);
    if (!settings_.resources.gpus) return lengths;
    const resources::ComputePlace place = make_place(settings_, model_, world_);
    // Work memory of a pass of few rows, and what libraries keep, take less than a tenth.
    constexpr double share_for_caches = 0.9;
    const int64_t weights =
        resources::weight_footprint(settings_.job, config_, true).bytes / settings_.resources.tp;
    const auto room = static_cast<int64_t>(
        share_for_caches * static_cast<double>(place.device->memory().free_bytes - weights));
    const int64_t slot_bytes = config_.kv_bytes_per_token(settings_.resources.kv_dtype) /
                               (int64_t{settings_.resources.sp} * settings_.resources.tp);
    std::vector<int64_t> bytes;
    for (const int64_t length : lengths)
      bytes.push_back(slots_of(settings_, {length}, all_steps()) * slot_bytes);
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
        fail<InputError>("--masters {}: there are {} instances", masters, instances());
      if (masters > 0 && masters < instances() && options_.ring != "broadcast_q")
        fail<InputError>("--masters: instances without rows need --ring broadcast_q");
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
      const DecodeCase& first = steps.front().first;
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
                      {"chosen_over_fastest", seconds ? nlohmann::ordered_json(*seconds / best)
                                                      : nlohmann::ordered_json()}});
    }
  }

  /// Returns the median seconds of a step.
  double measure(const DecodeCase& one) {
    const int runs = session_.options.runs;
    ReplicaSettings settings = settings_;
    settings.masters = static_cast<int>(one.masters);
    settings.resources.kv_tokens = slots_of(settings, one.lengths, all_steps());
    settings.make_room_for_states(config_, one.batch());
    Replica replica(world_, model_, settings);
    const std::string rule = by_rule(replica, one.batch());
    const auto sequences = filled(replica, one, all_steps(), options_.model.seed);
    std::vector<int32_t> tokens = tokens_of(one.batch());
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
        static_cast<double>(one.batch() * runs * options_.steps * config_.layers);
    const Shares shares = shares_since(world_, totals, replica.recorder().totals(),
                                       std::accumulate(seconds.begin(), seconds.end(), 0.0));
    for (double& one_run : seconds) one_run /= options_.steps;
    const Spread step_s = spread(seconds);
    const int64_t cached = one.cached() / one.batch() + all_steps() -
                           options_.steps * runs / 2;  // by a sequence, at mid-run
    const double bytes =
        decode_bytes(config_, model_.weights, one.batch(), cached, settings.resources.kv_dtype,
                     world_.size(), resources::quantize_of(settings.job));
    const double flops = decode_flops(config_, one.batch(), cached);
    const auto [share, bound] = floors_.reached(bytes, flops, step_s.median);
    const double tokens_per_s = static_cast<double>(one.batch()) / step_s.median;
    const auto taken = stage_seconds(stages, replica.recorder().stages());

    results_.row(
        "{}|{}|{}|{:.3f}|{:.3f}|{:.3f}|{:.1f}|{:.1f}|{:.2f}|{}|{:.1f}|"
        "{:.1f}|{:.1f}|{:.1f}|{:.1f}|{}",
        one.context, one.batch(), one.masters, step_s.median * 1e3, step_s.min * 1e3,
        step_s.max * 1e3, tokens_per_s, bytes * 1e-6, flops * 1e-9, bound, 100 * share,
        sent.in_layers() / per_token_and_layer, sent.expected_in_layers / per_token_and_layer,
        100 * shares.exposed_comm, 100 * shares.idle, rule);
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
                    {"read_bandwidth", floors_.read_bandwidth},
                    {"product_flops", floors_.flops},
                    {"bound_by", bound},
                    {"share_of_floor", share},
                    {"sent_bytes_of_layers", sent.in_layers()},
                    {"expected_bytes_of_layers", sent.expected_in_layers},
                    {"layers", config_.layers},
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

  /// The one rank decodes the sequences one by one. The tokens are given, not sampled, so that a near
  /// tie cannot lead two layouts to different texts.
  void check(const DecodeCase& one) {
    ReplicaSettings settings = settings_;
    settings.masters = static_cast<int>(one.masters);
    const Feed feed = [&](comm::Communicator& ring, const LoadedModel& model, ReplicaSettings of) {
      const int64_t per_pass = &ring == &world_ ? one.batch() : 1;
      of.resources.kv_tokens = slots_of(of, one.lengths, check_steps);
      of.make_room_for_states(config_, one.batch());
      Replica replica(ring, model, of);
      const auto sequences = filled(replica, one, check_steps, options_.model.seed);
      std::vector<float> logprobs;
      for (int step = 0; step < check_steps; ++step) {
        const std::vector<int32_t> tokens = tokens_of(one.batch(), step);
        for (int64_t begin = 0; begin < one.batch(); begin += per_pass) {
          const Answer answer = replica.decode(std::span(sequences).subspan(begin, per_pass),
                                               std::span(tokens).subspan(begin, per_pass));
          logprobs.insert(logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
        }
      }
      return logprobs;
    };
    check_in_fp32(settings, feed,
                  fmt::format("{} steps of {} sequences after {} tokens", check_steps, one.batch(),
                              one.context));
  }

  const DecodeOptions& options_;
  std::optional<schedule::TeamTimes> times_;  ///< of all instances together
  std::vector<Steps> compared_;
  std::vector<TimedWork> timed_;
};

}  // namespace

void add_decode(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<DecodeOptions>();
  Command command(app, chosen, "decode", "Times decode steps of a model on a ring of ranks",
                  [options](const Session& session) { Decode(session, *options).run(); });
  add_model_options(command, options->model);
  command.positive("--contexts", &options->contexts, "Tokens in each sequence's cache");
  command.positive("--batches", &options->batches, "Numbers of sequences");
  command.flag("--mixed", &options->mixed,
               "Random lengths, from half of --contexts to three halves");
  command.word("--ring", &options->ring, "What travels between context-parallel ranks",
               {"pass_q", "broadcast_q", "pass_kv"});
  command.not_negative("--masters", &options->masters,
                       "Instances that have rows, with broadcast_q; 0: all");
  command.positive("--steps", &options->steps, "Decode steps of a run");
}

}  // namespace pecia::bench
