// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Plans of passes as a job would make them, for phantoms of its ranks.

#include <optional>

#include "lib/engine/schedule/plan.hpp"
#include "lib/ranks/parallel/pass_modes.hpp"

namespace pecia::execute {

struct TrialPasses {
  int instances = 1;  ///< of the replica; all of them are one team
  int32_t virtual_ranks =
      1;  ///< the number of instances, or with `reproducible: layout` layout_ranks
  parallel::PassModes modes;
  parallel::AttentionExchange prefill_ring = parallel::AttentionExchange::pass_kv;
  /// Passes of at least this number of tokens go by levels; absent: none.
  std::optional<int64_t> levels_from = {};
  /// Tokens of a pass that read the cached tokens of new sequences; absent: one pass read all.
  std::optional<int64_t> tokens_per_pass = {};

  /// A pass with `tokens` new tokens of each of the sequences [first, first + count), which are new
  /// and have `cached` tokens already, where passes of a prompt leave them. No token is sampled
  /// unless `sampled`.
  schedule::Plan feed(int64_t first, int64_t count, int64_t tokens, int64_t cached = 0,
                      bool sampled = true) const;

  /// A step of the sequences [first, first + count), which have `tokens` tokens each. They are known
  /// from a pass before, or new. States of new ones are where their rows are, but for virtual ranks.
  schedule::Plan step(int64_t first, int64_t count, int64_t tokens, bool are_new = false) const;

  /// Slots that suffice on each rank for tokens that are dealt to all instances.
  int64_t slots(int64_t tokens) const;
  /// Tokens of a short sequence of which every instance holds some.
  int64_t short_tokens() const { return 2 * int64_t{virtual_ranks}; }

  bool by_levels(int64_t tokens) const { return levels_from && tokens >= *levels_from; }

 private:
  int64_t slots_read(int64_t tokens) const;
  parallel::PassSequence chunk(int64_t sequence, int64_t first, int64_t count) const;
  schedule::Plan plan_of(parallel::AttentionExchange ring, parallel::Sharding sharding) const;
  schedule::NewSequence new_sequence(int64_t sequence, int64_t cached, int64_t slots_each) const;
};

}  // namespace pecia::execute
