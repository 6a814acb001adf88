// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/request_latency.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/engine/schedule/pipeline.hpp"

namespace pecia::simulation {
namespace {

constexpr int64_t most_tokens = int64_t{1} << 40;
constexpr int64_t most_chunks_played = 9;

/// How often each of `played` counts among `count` things whose times lie on lines between theirs.
///
///     0, 2, 4 of 5 things     1.5, 2, 1.5
std::vector<double> weights_of(const std::vector<int64_t>& played) {
  std::vector<double> weights(played.size(), 0);
  for (size_t i = 0; i < played.size(); ++i) {
    weights[i] += 1;
    if (i + 1 == played.size()) break;
    const double between = 0.5 * static_cast<double>(played[i + 1] - played[i] - 1);
    weights[i] += between;
    weights[i + 1] += between;
  }
  return weights;
}

/// The numbers of some of `count` chunks: of the first, and of others evenly spread from the second
/// to the last. The first is unlike the others, as nothing is cached before it.
std::vector<int64_t> spread(int64_t count) {
  const int64_t others = std::min(count, most_chunks_played) - 1;
  std::vector<int64_t> some{0};
  for (int64_t i = 0; i < others; ++i)
    some.push_back(1 + i * (count - 2) / std::max<int64_t>(1, others - 1));
  return some;
}

/// What the host does for the request before its first pass.
double host_seconds(const Scenario& scenario, const RequestShape& shape) {
  return 1e-6 * scenario.cluster.overhead.context_token_us *
         static_cast<double>(shape.prompt_tokens + shape.cached_tokens);
}

/// The whole chunks of a prompt that a team reads, and its rest.
RequestLatency prompt_latency(const ReplicaPasses& passes, int degree, const RequestShape& shape) {
  const int64_t chunk = std::min(passes.batch_tokens(degree), shape.prompt_tokens);
  const int64_t whole = shape.prompt_tokens / chunk, rest = shape.prompt_tokens % chunk;
  PassCost sum;
  const auto add = [&](int64_t begin, int64_t tokens, double times) {
    sum.add(passes.cost(passes.prefill(degree, 1, tokens, shape.cached_tokens + begin)), times);
  };
  const std::vector<int64_t> played = spread(whole);
  const std::vector<double> weights = weights_of(played);
  for (size_t i = 0; i < played.size(); ++i) add(played[i] * chunk, chunk, weights[i]);
  if (rest > 0) add(whole * chunk, rest, 1);
  return {sum.seconds, 0, sum.times, sum.sent_bytes};
}

/// A prompt's chunks one behind the other through stages: each takes the time of the slowest stage, and
/// the last one goes through the others as well.
RequestLatency staged_latency(const ReplicaPasses& passes, const schedule::SchedulerLimits& limits,
                              const RequestShape& shape) {
  schedule::PipelinedPrompt prompt{shape.cached_tokens, shape.prompt_tokens, 0};
  const schedule::ChunkRule rule = schedule::chunk_rule(limits, true);
  std::vector<std::pair<int64_t, int64_t>> chunks;  // begin, tokens
  while (prompt.planned < prompt.count) {
    const int64_t tokens = schedule::chunk_of_equal_work(prompt, rule);
    chunks.emplace_back(prompt.planned, tokens);
    prompt.planned += tokens;
  }
  const auto cost_of = [&](int64_t chunk) -> const PassCost& {
    const auto [begin, tokens] = chunks[chunk];
    return passes.cost(passes.prefill(limits.ring_size, 1, tokens, shape.cached_tokens + begin));
  };
  const double slowest = std::ranges::max(schedule::shares_of_stages(limits.stage_work, 0, 1, 0));
  PassCost sum;
  const std::vector<int64_t> played = spread(std::ssize(chunks));
  const std::vector<double> weights = weights_of(played);
  for (size_t i = 0; i < played.size(); ++i) sum.add(cost_of(played[i]), weights[i] * slowest);
  sum.add(cost_of(std::ssize(chunks) - 1), 1 - slowest);
  return {sum.seconds, 0, sum.times, sum.sent_bytes};
}

schedule::SchedulerLimits limits_of(const PassCosts& costs, const resources::Resources& resources) {
  return schedule::limits_of(costs.scenario().job, costs.scenario().config, resources);
}

/// A step in the middle of the answer. Of a team that changes, one instance makes it.
PassShape step_of(const ReplicaPasses& passes, int degree, const RequestShape& shape) {
  const int64_t middle = shape.cached_tokens + shape.prompt_tokens + shape.new_tokens / 2;
  return passes.step(degree, 1, 1, middle);
}

}  // namespace

RequestShape parse_shape(std::string_view text, std::string_view of) {
  const auto refuse = [&](const char* why) {
    fail<InputError>("request {}: {}; write it as PROMPT[+CACHED][:NEW][xCOUNT] with whole numbers",
                     of.empty() ? text : of, why);
  };
  std::string_view left = text;
  const auto take = [&](int64_t least) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), value);
    if (error != std::errc()) refuse("a number is missing or too large");
    if (value < least || value > most_tokens)
      refuse("a number is out of range (PROMPT and NEW from 1, CACHED from 0, up to 2^40)");
    left.remove_prefix(end - left.data());
    return value;
  };
  const auto next_is = [&](char c) {
    if (!left.starts_with(c)) return false;
    left.remove_prefix(1);
    return true;
  };
  RequestShape shape;
  shape.prompt_tokens = take(1);
  if (next_is('+')) shape.cached_tokens = take(0);
  if (next_is(':')) shape.new_tokens = take(1);
  if (!left.empty()) refuse("there is more after the numbers");
  return shape;
}

RequestLatency request_latency(PassCosts& costs, const resources::Resources& resources,
                               const RequestShape& shape, Fidelity fidelity) {
  const ReplicaPasses passes(costs, resources, fidelity);
  std::optional<RequestLatency> best;
  for (const int degree : passes.degrees()) {
    RequestLatency latency = resources.pp > 1
                                 ? staged_latency(passes, limits_of(costs, resources), shape)
                                 : prompt_latency(passes, degree, shape);
    latency.ttft_s += host_seconds(costs.scenario(), shape);
    latency.tbt_s = passes.cost(step_of(passes, degree, shape)).seconds;
    if (!best) best = latency;
    const double tbt_s = std::min(best->tbt_s, latency.tbt_s);  // an answer has a team of its own
    if (latency.ttft_s < best->ttft_s) best = latency;
    best->tbt_s = tbt_s;
  }
  return *best;
}

void write_traces(PassCosts& costs, const resources::Resources& resources,
                  const RequestShape& shape, const std::filesystem::path& folder) {
  const ReplicaPasses passes(costs, resources, Fidelity::replayed);
  const cluster_files::Cluster& cluster = costs.scenario().cluster;
  const int degree = resources.cp;
  const int64_t chunk = std::min(passes.batch_tokens(degree), shape.prompt_tokens);
  const int64_t begin = (shape.prompt_tokens - 1) / chunk * chunk;
  const PassShape last =
      passes.prefill(degree, 1, shape.prompt_tokens - begin, shape.cached_tokens + begin);
  write_trace(costs.programs(last), cluster, "prefill", folder / "prefill");
  write_trace(costs.programs(step_of(passes, degree, shape)), cluster, "decode", folder / "decode");
}

}  // namespace pecia::simulation
