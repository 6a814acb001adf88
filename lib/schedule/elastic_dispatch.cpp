// SPDX-License-Identifier: Apache-2.0
#include "lib/schedule/elastic_dispatch.hpp"

#include "lib/core/error.hpp"

namespace pecia::schedule {
namespace {

constexpr double worth = 0.95;  // a request's margin must be below this part of its share

/// Requests that are read side by side on some instances.
class Batch {
 public:
  Batch(const PassRates& rates, int instances, int64_t rows_per_instance)
      : rates_(rates), instances_(instances), tokens_per_pass_(instances * rows_per_instance) {}

  void add(const ElasticRequest& request) {
    tokens_ += request.prompt_tokens;
    compute_s_ += compute_s(request);
  }
  double seconds() const {
    const int64_t passes = (tokens_ + tokens_per_pass_ - 1) / tokens_per_pass_;
    return rates_.pass_s * static_cast<double>(passes) + compute_s_ / instances_;
  }
  /// The part of seconds() that falls to one of the batch's requests.
  double share_s(const ElasticRequest& request) const {
    return seconds() * compute_s(request) / compute_s_;
  }

 private:
  double compute_s(const ElasticRequest& request) const {
    return rates_.row_s * static_cast<double>(request.prompt_tokens) +
           rates_.pair_s * request.pairs();
  }

  PassRates rates_;
  int instances_;
  int64_t tokens_per_pass_;
  int64_t tokens_ = 0;
  double compute_s_ = 0;
};

void check_state(const std::vector<ElasticRequest>& waiting, const DispatchState& state) {
  PECIA_CHECK(state.idle_instances >= 0 && state.decoding_instances >= 0 &&
                  state.decoding_rows >= 0 && state.wait_s >= 0 && state.rows_per_instance >= 1,
              "{} idle and {} decoding instances, {} rows, {} s, {} rows of an instance",
              state.idle_instances, state.decoding_instances, state.decoding_rows, state.wait_s,
              state.rows_per_instance);
  check_requests(waiting);
}

}  // namespace

Dispatch dispatch(const TeamTimes& times, const std::vector<ElasticRequest>& waiting,
                  const DispatchState& state) {
  check_state(waiting, state);
  Dispatch result;
  if (waiting.empty()) return result;
  const bool preempts = state.idle_instances == 0;
  const int instances = preempts ? state.decoding_instances : state.idle_instances;
  if (instances == 0) {
    result.stop = DispatchStop::no_instance;
    return result;
  }
  Batch batch(times.rates(1, PassKind::prefill), instances, state.rows_per_instance);
  int64_t slots = state.free_slots;
  for (const ElasticRequest& request : waiting) {
    Batch with = batch;
    with.add(request);
    const double marginal_s = with.seconds() - result.seconds;
    const auto stop = [&](DispatchStop why, double limit_s) {
      result.stop = why, result.limit_s = limit_s;
      result.rejected_s = with.seconds(), result.marginal_s = marginal_s;
      return result;
    };
    if (request.slots() > slots) return stop(DispatchStop::slots, 0);
    const auto delayed = static_cast<double>(state.decoding_rows);
    if (preempts && !(delayed * marginal_s < state.wait_s))
      return stop(DispatchStop::preemption, delayed > 0 ? state.wait_s / delayed : 0);
    if (const double limit_s = worth * with.share_s(request);
        result.count > 0 && !(marginal_s < limit_s))
      return stop(DispatchStop::compute_bound, limit_s);
    batch = with;
    slots -= request.slots();
    result.seconds = batch.seconds();
    ++result.count;
  }
  return result;
}

}  // namespace pecia::schedule
