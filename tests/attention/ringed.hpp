// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention over ranks against softmax over all keys at once.

#include "lib/model/attention/attention.hpp"
#include "tests/attention/groups.hpp"
#include "tests/attention/softmax.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/ring_formulas.hpp"

namespace pecia::attention {

/// Instances of one rank each, fed with pass after pass; checks every output row.
class Ringed {
 public:
  /// `recent_slots`: of the layer, which then keeps the tokens that its window reaches; 0: all.
  Ringed(comm::Communicator& comm, kernels::Window window, DType dtype = DType::fp32,
         int64_t recent_slots = 0)
      : comm_(comm),
        window_(window),
        compute_(1, kernels::make_reference_backend()),
        cache_({1, kv_heads, head_dim, dtype}, capacity, *compute_.device,
               recent_slots > 0 ? RecentLayers{window, recent_slots, {true}} : RecentLayers{}),
        attention_(groups_, {heads, kv_heads}, {window}, compute_, cache_),
        softmax_(window, dtype) {}

  void add(int64_t sequence, const std::vector<int64_t>& reserved,
           std::optional<int64_t> parent = {}) {
    attention_.ledger().add(sequence, reserved, parent);
    softmax_.add(sequence, parent);
  }
  void add(int64_t sequence, int64_t reserved, std::optional<int64_t> parent = {}) {
    add(sequence, std::vector<int64_t>(comm_.size(), reserved), parent);
  }
  /// Gives the sequence this room, whatever it had, as where an instance joins.
  void reserve(int64_t sequence, const std::vector<int64_t>& reserved) {
    attention_.ledger().settle();
    parallel::SequenceState state = map().state(sequence);
    state.reserved = reserved;
    attention_.ledger().set_state(sequence, state);
  }
  void remove(int64_t sequence) { attention_.ledger().remove(sequence); }
  const parallel::KvMap& map() const { return attention_.ledger().map(); }
  const RecentSlots* recent() const { return attention_.ledger().recent(); }
  void settle() { attention_.ledger().settle(); }
  int64_t free_slots() const { return cache_.free_tokens(); }
  int64_t length(int64_t sequence) const { return map().length(sequence); }

  /// Of all instances as one team. Checks also what is sent.
  void pass(const std::vector<PassSequence>& pass, AttentionExchange ring) {
    this->pass({{parallel::team_of_all(comm_.size(), ring), pass}});
  }
  void pass(const std::vector<parallel::TeamPass>& teams) {
    const int64_t before = comm_.traffic().bytes;
    const WindowTotals windows_before = attention_.window_totals();
    attention_.ledger().settle();
    const parallel::KvMap map_before = map();
    attention_.begin_pass(teams, ++passes_);
    EXPECT_EQ(comm_.traffic().bytes, before);  // forming teams costs no message
    if (const auto own = team_of(teams, comm_.rank())) run(teams[*own]);
    const auto by_formula = [&](kernels::Window window) {
      return test::ring_bytes(teams, map(), map_before, comm_.rank(),
                              {heads, kv_heads, head_dim, cache_.shape().layer_bytes_per_token(),
                               false, window, recent() != nullptr ? RecentSlots::block : 0});
    };
    const int64_t sent = by_formula(window_);
    EXPECT_EQ(comm_.traffic().bytes - before, sent);
    EXPECT_EQ(attention_.window_totals() - windows_before,
              window_ > 0 ? (WindowTotals{sent, by_formula(0)}) : WindowTotals{});
  }

 private:
  void run(const parallel::TeamPass& own) {
    const auto& [team, pass, placements] = own;
    Vectors of(pass, team, team.index_of(comm_.rank()).value());
    attention_.start_keys(of.k(), of.v());
    attention_.run(0, of.q(), of.out());
    softmax_.check(map(), of);
  }

  comm::Communicator& comm_;
  kernels::Window window_;
  int64_t passes_ = 0;
  test::CpuCompute compute_;
  KvCache cache_;
  ReplicaGroups groups_ = ring_groups(comm_);
  Attention attention_;
  Softmax softmax_;
};

}  // namespace pecia::attention
