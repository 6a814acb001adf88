// SPDX-License-Identifier: Apache-2.0
/// Times passes of batch.policy: chunked, which have the decode rows of some sequences and the
/// prompts of others, beside a pass of the same decode rows and one of the same prompts. The three
/// passes take turns, and a ratio is the median of the rounds' ratios. The floor of a mixed pass is
/// the longer of bytes / (measured read bandwidth) and FLOPs / (measured FLOP/s). --check compares
/// the log-probabilities of all its rows with the results of one rank alone, which decodes the
/// sequences and reads the prompts one by one, with an fp32 cache.

#include <algorithm>
#include <numeric>

#include "apps/bench/commands.hpp"
#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/model_bench.hpp"
#include "apps/bench/support/pass_totals.hpp"
#include "apps/bench/support/work.hpp"

namespace pecia::bench {
namespace {

struct MixedOptions {
  ModelOptions model;
  std::vector<int64_t> contexts = {512}, batches = {8, 32}, prompts = {1};
  std::vector<int64_t> prompt_tokens = {256, 512, 2048};
  std::string ring = "pass_kv";
};

struct MixedCase {
  int64_t context, batch, prompts, prompt_tokens;

  int64_t rows() const { return batch + prompts * prompt_tokens; }
};

class Mixed : ModelBench {
 public:
  Mixed(const Session& session, const MixedOptions& options)
      : ModelBench(session, options.model), options_(options) {
    if (options.ring == "pass_q") settings_.prefill_ring = parallel::AttentionExchange::pass_q;
  }

  void run() {
    begin(options_.ring, {{"ring", options_.ring}});
    results_.columns(
        "context|batch|prompts|tokens|step ms|prompts ms|mixed ms|min ms|max ms|mixed / "
        "apart|GFLOP|MB|bound by|% of floor");
    for (const int64_t context : options_.contexts)
      for (const int64_t batch : options_.batches)
        for (const int64_t prompts : options_.prompts)
          for (const int64_t tokens : options_.prompt_tokens) {
            const MixedCase one{context, batch, prompts, tokens};
            measure(one);
            if (session_.options.check) check(one);
          }
  }

 private:
  /// Each round has two steps, and one round warms up.
  int64_t all_steps() const { return 2 * int64_t{session_.options.runs + 1}; }

  /// Settings with room for the case, and for its prompts in one pass.
  ReplicaSettings with_room(ReplicaSettings settings, const MixedCase& one, int64_t steps) const {
    resources::Resources& of = settings.resources;
    of.max_batch_tokens = std::max(of.max_batch_tokens, one.prompts * one.prompt_tokens);
    of.kv_tokens = one.batch * Replica::slots(settings, one.context, steps) +
                   one.prompts * Replica::slots(settings, one.prompt_tokens, 0);
    settings.make_room_for_states(config_, one.batch + one.prompts);
    return settings;
  }

  std::vector<parallel::SequenceId> filled(Replica& replica, const MixedCase& one,
                                           int64_t steps) const {
    std::vector<parallel::SequenceId> sequences(one.batch);
    std::iota(sequences.begin(), sequences.end(), 0);
    for (const parallel::SequenceId sequence : sequences)
      replica.fill(sequence, one.context, steps, options_.model.seed);
    return sequences;
  }

  std::vector<Replica::Prompt> prompts_of(const MixedCase& one) const {
    std::vector<Replica::Prompt> prompts;
    for (int64_t i = 0; i < one.prompts; ++i)
      prompts.push_back({one.batch + i, tokens_of(one.prompt_tokens, 1 + i)});
    return prompts;
  }

  void measure(const MixedCase& one) {
    const ReplicaSettings settings = with_room(settings_, one, all_steps());
    Replica replica(world_, model_, settings);
    const auto sequences = filled(replica, one, all_steps());
    const std::vector<Replica::Prompt> prompts = prompts_of(one);
    const auto forget = [&] {
      for (const Replica::Prompt& prompt : prompts) replica.remove(prompt.sequence);
      replica.release_removed();
    };
    const auto seconds = [&](const std::function<void()>& pass) {
      return timed_runs(world_, 1, pass).front();
    };
    std::vector<int32_t> tokens = tokens_of(one.batch);
    std::vector<double> step_s, prompt_s, mixed_s, ratios;
    for (int round = -1; round < session_.options.runs; ++round) {
      const double step = seconds([&] { tokens = replica.decode(sequences, tokens).tokens; });
      const double alone = seconds([&] { replica.step_and_prefill({}, {}, prompts); });
      forget();
      const double together =
          seconds([&] { tokens = replica.step_and_prefill(sequences, tokens, prompts).tokens; });
      forget();
      if (!tokens.empty()) tokens.resize(one.batch);  // without those after the prompts
      if (round < 0) continue;
      step_s.push_back(step), prompt_s.push_back(alone), mixed_s.push_back(together);
      ratios.push_back(together / (step + alone));
    }
    report(one, spread(step_s), spread(prompt_s), spread(mixed_s), spread(ratios));
    if (session_.options.check)
      check_together(world_, sent_by_all(world_, replica).problem(settings));
  }

  /// Bytes that a mixed pass has to read: the matrices that its rows touch, and keys and values.
  double bytes_of(const MixedCase& one) const {
    const auto bytes = [&](int64_t rows, int64_t cached) {
      return decode_bytes(config_, model_.weights, rows, cached, settings_.resources.kv_dtype,
                          world_.size(), resources::quantize_of(settings_.job));
    };
    const int64_t cached = one.context + all_steps() / 2;  // of a sequence, at mid-run
    return bytes(one.rows(), 0) + bytes(one.batch, cached) - bytes(one.batch, 0);
  }

  void report(const MixedCase& one, const Spread& step_s, const Spread& prompt_s,
              const Spread& mixed_s, const Spread& ratio) const {
    const double bytes = bytes_of(one);
    const double flops =
        static_cast<double>(one.prompts) * prefill_flops(config_, one.prompt_tokens, 0) +
        decode_flops(config_, one.batch, one.context + all_steps() / 2);
    const auto [share, bound] = floors_.reached(bytes, flops, mixed_s.median);
    results_.row("{}|{}|{}|{}|{:.3f}|{:.3f}|{:.3f}|{:.3f}|{:.3f}|{:.3f}|{:.1f}|{:.1f}|{}|{:.1f}",
                 one.context, one.batch, one.prompts, one.prompt_tokens, 1e3 * step_s.median,
                 1e3 * prompt_s.median, 1e3 * mixed_s.median, 1e3 * mixed_s.min, 1e3 * mixed_s.max,
                 ratio.median, 1e-9 * flops, 1e-6 * bytes, bound, 100 * share);
    results_.write({{"context", one.context},
                    {"batch", one.batch},
                    {"prompts", one.prompts},
                    {"prompt_tokens", one.prompt_tokens},
                    {"step_seconds", to_json(step_s)},
                    {"prompts_seconds", to_json(prompt_s)},
                    {"mixed_seconds", to_json(mixed_s)},
                    {"mixed_over_apart", to_json(ratio)},
                    {"bytes", bytes},
                    {"flops", flops},
                    {"read_bandwidth", floors_.read_bandwidth},
                    {"product_flops", floors_.flops},
                    {"bound_by", bound},
                    {"share_of_floor", share}});
  }

  /// The one rank decodes the sequences and reads the prompts one by one.
  void check(const MixedCase& one) {
    const std::vector<Replica::Prompt> prompts = prompts_of(one);
    const std::vector<int32_t> tokens = tokens_of(one.batch);
    const Feed feed = [&](comm::Communicator& ring, const LoadedModel& model,
                          const ReplicaSettings& of) {
      Replica replica(ring, model, with_room(of, one, 1));
      const auto sequences = filled(replica, one, 1);
      if (&ring == &world_) return replica.step_and_prefill(sequences, tokens, prompts).logprobs;
      std::vector<float> logprobs;
      const auto keep = [&](const Answer& answer) {
        logprobs.insert(logprobs.end(), answer.logprobs.begin(), answer.logprobs.end());
      };
      for (int64_t i = 0; i < one.batch; ++i)
        keep(replica.decode(std::span(sequences).subspan(i, 1), std::span(tokens).subspan(i, 1)));
      for (const Replica::Prompt& prompt : prompts)
        keep(replica.prefill(prompt.sequence, prompt.tokens));
      return logprobs;
    };
    check_in_fp32(settings_, feed,
                  fmt::format("of {} sequences after {} tokens and {} prompts of {}", one.batch,
                              one.context, one.prompts, one.prompt_tokens));
  }

  const MixedOptions& options_;
};

}  // namespace

void add_mixed(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<MixedOptions>();
  Command command(app, chosen, "mixed", "Times passes of a model with decode rows and prompts",
                  [options](const Session& session) { Mixed(session, *options).run(); });
  add_model_options(command, options->model);
  command.positive("--contexts", &options->contexts,
                   "Tokens in the cache of each sequence that is decoded");
  command.positive("--batches", &options->batches, "Numbers of sequences that are decoded");
  command.positive("--prompts", &options->prompts,
                   "Numbers of prompts beside them, all in one pass");
  command.positive("--prompt-tokens", &options->prompt_tokens, "Tokens of each prompt");
  command.word("--ring", &options->ring,
               "What travels between context-parallel ranks in passes with prompts; pass_q in the "
               "others",
               {"pass_kv", "pass_q"});
}

}  // namespace pecia::bench
