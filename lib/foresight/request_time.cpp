// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/request_time.hpp"

#include <algorithm>
#include <charconv>

#include "lib/core/error.hpp"
#include "lib/foresight/trace.hpp"

namespace pecia::foresight {
namespace {

using parallel::Ring;

constexpr int64_t most_tokens = int64_t{1} << 40;
constexpr int64_t most_chunks_played = 9;

/// Slots of a rank for the whole request.
int64_t slots_of(const execute::TrialPasses& passes, const RequestShape& shape) {
  return passes.slots(shape.cached_tokens) +
         passes.slots(shape.prompt_tokens + shape.new_tokens + passes.virtual_ranks);
}

/// The ranks in a step in the middle of the answer.
std::vector<Program> step_of(const Replica& replica, const machines::Cluster& cluster,
                             const RequestShape& shape) {
  const execute::TrialPasses passes = passes_of(replica, Ring::pass_kv);
  const int64_t middle = shape.cached_tokens + shape.prompt_tokens + shape.new_tokens / 2;
  return programs_of(replica, cluster, passes.step(0, 1, middle, true));
}

/// The ranks in a chunk of the prompt.
std::vector<Program> chunk_of(const Replica& replica, const machines::Cluster& cluster,
                              const RequestShape& shape, Ring ring, int64_t begin, int64_t tokens) {
  const execute::TrialPasses passes = passes_of(replica, ring);
  const bool is_last = begin + tokens == shape.prompt_tokens;
  return programs_of(replica, cluster,
                     passes.feed(0, 1, tokens, shape.cached_tokens + begin, is_last));
}

void add(RankTimes& sum, const RankTimes& more, double times) {
  sum.gemm_s += times * more.gemm_s;
  sum.attention_s += times * more.attention_s;
  sum.other_s += times * more.other_s;
  sum.exposed_comm_s += times * more.exposed_comm_s;
  sum.end_s += times * more.end_s;
}

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

/// The whole chunks of a prompt, and its rest.
RequestTime prompt_time(const Replica& replica, const machines::Cluster& cluster,
                        const RequestShape& shape, Ring ring) {
  const int64_t chunk = std::min(replica.resources.max_batch_tokens, shape.prompt_tokens);
  const int64_t whole = shape.prompt_tokens / chunk, rest = shape.prompt_tokens % chunk;
  RequestTime time;
  time.ring = ring;
  const auto play = [&](int64_t begin, int64_t tokens, double times) {
    const PassTime pass = replay(chunk_of(replica, cluster, shape, ring, begin, tokens), cluster);
    time.ttft_s += times * pass.seconds;
    add(time.prefill, pass.busiest(), times);
  };
  const std::vector<int64_t> played = spread(whole);
  const std::vector<double> weights = weights_of(played);
  for (size_t i = 0; i < played.size(); ++i) play(played[i] * chunk, chunk, weights[i]);
  if (rest > 0) play(whole * chunk, rest, 1);
  return time;
}

}  // namespace

RequestShape parse_shape(std::string_view text) {
  const auto refuse = [&](const char* why) {
    fail<InputError>("request {}: {}; write it as PROMPT[+CACHED][:NEW] with whole numbers", text,
                     why);
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

RequestTime foresee(const Replica& replica, const machines::Cluster& cluster,
                    const RequestShape& shape) {
  std::optional<RequestTime> best;
  for (const Ring ring : rings_of(replica.resources)) {
    const RequestTime time = prompt_time(replica, cluster, shape, ring);
    if (!best || time.ttft_s < best->ttft_s) best = time;
  }
  best->tbt_s = replay(step_of(replica, cluster, shape), cluster).seconds;
  return *best;
}

void write_traces(const Replica& replica, const machines::Cluster& cluster,
                  const RequestShape& shape, Ring ring, const std::filesystem::path& folder) {
  const int64_t chunk = std::min(replica.resources.max_batch_tokens, shape.prompt_tokens);
  const int64_t begin = (shape.prompt_tokens - 1) / chunk * chunk;
  write_trace(chunk_of(replica, cluster, shape, ring, begin, shape.prompt_tokens - begin), cluster,
              "prefill", folder / "prefill");
  write_trace(step_of(replica, cluster, shape), cluster, "decode", folder / "decode");
}

std::optional<std::string> why_not(const Replica& replica, const machines::Cluster& cluster,
                                   const RequestShape& shape) try {
  const execute::TrialPasses passes = passes_of(replica, rings_of(replica.resources).back());
  const int64_t chunk = std::min(replica.resources.max_batch_tokens, shape.prompt_tokens);
  execute::PhantomRank rank(replica.config,
                            settings_of(replica, cluster, 0, slots_of(passes, shape),
                                        static_cast<int64_t>(cluster.rank.memory_gib * 0x1p30)));
  rank.execute(passes.feed(0, 1, chunk, shape.cached_tokens + shape.prompt_tokens - chunk));
  return {};
} catch (const SystemError& error) {
  return error.what();
}

}  // namespace pecia::foresight
