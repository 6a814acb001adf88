// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long a team's passes take, by its degree (its number of instances) and by the kind of pass.
/// A degree begins with an estimate that follows from one instance alone. It is fitted to its own
/// passes as soon as one of them was measured.
/// Source: LoongServe (model of an iteration's time, fitted for each degree of parallelism).

#include <cstdint>
#include <optional>
#include <vector>

#include "lib/engine/schedule/pass_times.hpp"

namespace pecia::schedule {

enum class PassKind { prefill, decode };

/// What a pass of a team adds to a pass of one instance.
struct TeamCosts {
  double message_s = 0;            ///< seconds until a message without content has arrived
  double bytes_per_second = 0;     ///< that an instance sends while it receives as much
  double kv_bytes_per_token = 0;   ///< keys and values of a token, all layers together
  double query_bytes_per_row = 0;  ///< a row's queries to one holder and the partial outputs home,
                                   ///< all layers together
  int layers = 0;
  /// Whether keys of cached tokens travel while attention takes place, as between GPUs. CPUs that
  /// compute send little meanwhile.
  bool hides_keys = false;
  double state_bytes = 0;  ///< of a sequence, in all recurrent layers together
};

/// Returns the rates that a team's passes are expected to have, from the rates of one instance.
///
/// A prefill pass has a ring of d − 1 steps in each layer, and the keys and values of the busiest
/// instance's r rows travel in each step. The state of a prompt goes through its 2d chunks, which are
/// on d instances, one after the other. A decode pass has two exchanges in each layer: a master's
/// queries go to d − 1 holders, and the partial outputs return to the master.
///
///     prefill   pass_s + layers·(d−1)·message_s    row_s + (d−1)·kv_bytes_per_token / bytes_per_second
///                 + 2·(d−1)·state_bytes / bytes_per_second
///     decode    pass_s + layers·2·message_s        row_s + (d−1)·query_bytes_per_row / bytes_per_second
///
/// Travel of these bytes counts in full, as if nothing hid it. A rate that was fitted to zero begins with a
/// very small number instead, so that a degree's own passes can raise it.
PassRates expected_rates(const PassRates& alone, const TeamCosts& costs, int degree, PassKind kind);

/// Times of one degree and kind, for many passes in a row.
struct DegreeTimes {
  PassRates rates;
  double travel_s = 0;      ///< of a cached token's keys, beside the rates
  bool hides_keys = false;  ///< that travel while attention takes place

  /// Of the time in which cached tokens' keys travel, what attention does not hide.
  double exposed_s(const PassWork& busiest) const;
  double seconds(const PassWork& busiest) const;
};

/// Times by degree. The work of a pass is the work of its busiest instance.
///
/// Prefill: `rows` are the most rows and `pairs` the most query-key pairs of one instance. Decode:
/// `rows` are the rows of the master that has most, and `pairs` the pairs of the holder that has
/// most. The number of masters counts only through these rows.
///
/// A degree that was never measured follows the present rates of one instance, so it changes when
/// these are measured. Travel of cached tokens' keys is no part of the rates: it is added to prefill
/// passes, and taken off the time of measured ones, as far as attention does not hide it. A pass that
/// lasts less than its keys should travel shows that links are faster. Errors: every function throws
/// InvalidArgument unless 1 ≤ degree ≤ degrees() and all numbers are finite and not negative.
class TeamTimes {
 public:
  /// `alone` may hold measured passes. `degrees` is the largest degree of a team.
  TeamTimes(const PassTimes& alone, const TeamCosts& costs, int degrees);

  int degrees() const { return static_cast<int>(fits_.size()); }

  /// Takes in a measured pass. RateFit ignores one that took no time.
  void add(int degree, PassKind kind, const PassWork& busiest, double seconds);
  /// Lets a degree begin with these rates, which an earlier start measured.
  void begin_with(int degree, PassKind kind, const PassRates& rates);
  /// Whether a pass was taken in since then.
  bool measured(int degree, PassKind kind) const;
  PassRates rates(int degree, PassKind kind) const { return of(degree, kind).rates; }
  DegreeTimes of(int degree, PassKind kind) const;
  /// Of one instance.
  PassTimes alone() const { return {*fits_[0].prefill, *fits_[0].decode}; }
  double seconds(int degree, PassKind kind, const PassWork& busiest) const;
  /// Seconds in which the keys of `cached` tokens go round a team's ring. Nothing that hides them
  /// counts.
  double travel_s(int degree, double cached) const;
  /// Seconds in which a sequence's state goes to another instance.
  double state_s() const { return costs_.state_bytes / costs_.bytes_per_second; }

  /// Seconds to read `tokens` of a prompt after `cached` ones, in passes of at most
  /// `tokens_per_pass` tokens of the whole team.
  double prefill_s(int degree, int64_t cached, int64_t tokens, int64_t tokens_per_pass) const;
  /// Seconds of one decode pass with `rows` rows, dealt evenly to `masters` instances.
  /// `context_pairs` is the sum of the rows' contexts, which lie evenly on all instances. Requires
  /// 1 ≤ masters ≤ degree.
  double decode_s(int degree, int masters, int64_t rows, int64_t context_pairs) const;

 private:
  struct Fits {
    std::optional<RateFit> prefill, decode;  ///< absent: as expected_rates
  };
  const std::optional<RateFit>& fit(int degree, PassKind kind) const;
  std::optional<RateFit>& fit(int degree, PassKind kind);

  TeamCosts costs_;
  std::vector<Fits> fits_;  ///< [degree − 1]; those of degree 1 are always present
};

/// Returns the work of the busiest instance for a prompt that `degree` instances read, as in
/// prefill_s. The rows of each pass are dealt evenly, so the busiest has ⌈rows / degree⌉ of them,
/// and the same share of the pairs.
///
///     10 tokens after none, 8 a pass, degree 3      2 passes, 3 + 1 rows
PassWork busiest_prefill(int degree, int64_t cached, int64_t tokens, int64_t tokens_per_pass);

}  // namespace pecia::schedule
