// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Ring attention over ranks against softmax over all keys at once, in double.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "lib/context/ring_attention.hpp"
#include "tests/context/stored_vectors.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/ring_formulas.hpp"

namespace pecia::context {

using parallel::PassSequence;
using parallel::Ring;

inline constexpr int64_t heads = 4, kv_heads = 2, head_dim = 8, capacity = 4000;

/// Vector of a token: a function of its kind, sequence and position, so any rank can make any
/// rank's.
inline std::vector<float> vector_of(uint64_t kind, int64_t sequence, int64_t position,
                                    int64_t count) {
  return test::random_floats(
      count, kind * 1'000'003 + static_cast<uint64_t>(sequence * 65'537 + position));
}

/// Instances of one rank each, fed with pass after pass; checks every output row.
class Ringed {
 public:
  /// `recent_slots`: of the layer, which then keeps the tokens that its window reaches; 0: all.
  Ringed(comm::Communicator& comm, int64_t window, DType dtype = DType::fp32,
         int64_t recent_slots = 0)
      : comm_(comm),
        window_(window),
        dtype_(dtype),
        compute_(1, kernels::make_reference_backend()),
        cache_({1, kv_heads, head_dim, dtype}, capacity, *compute_.device,
               recent_slots > 0 ? RecentLayers{window, recent_slots, {true}} : RecentLayers{}),
        attention_(comm, compute_, cache_, heads, {window}) {}

  void add(int64_t sequence, const std::vector<int64_t>& reserved,
           std::optional<int64_t> parent = {}) {
    attention_.ledger().add(sequence, reserved, parent);
    parents_[sequence] = parent;
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
  void pass(const std::vector<PassSequence>& pass, Ring ring) {
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
    const auto by_formula = [&](int64_t window) {
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
    const int index = team.index_of(comm_.rank()).value();
    std::vector<float> q, k, v;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const PassSequence& rows : pass)
      for (const auto& range : rows_of(rows, team, index))
        for (int64_t position = range.begin; position < range.end; ++position) {
          append(q, vector_of(1, rows.sequence, position, heads * head_dim));
          append(k, vector_of(2, rows.sequence, position, kv_heads * head_dim));
          append(v, vector_of(3, rows.sequence, position, kv_heads * head_dim));
        }
    const auto rows = static_cast<int64_t>(q.size()) / (heads * head_dim);
    std::vector<float> out(q.size(), NAN);
    const auto view = [&](std::vector<float>& data, int64_t count) {
      return TensorView(static_cast<void*>(data.data()), DType::fp32, {rows, count, head_dim});
    };
    attention_.run(0, view(q, heads), view(k, kv_heads), view(v, kv_heads), view(out, heads));
    check(own, out);
  }

  void check(const parallel::TeamPass& own, const std::vector<float>& out) {
    const auto& [team, pass, placements] = own;
    const int index = team.index_of(comm_.rank()).value();
    int64_t row = 0;
    for (const PassSequence& rows : pass)
      for (const auto& range : rows_of(rows, team, index))
        for (int64_t position = range.begin; position < range.end; ++position, ++row)
          ASSERT_TRUE(
              test::all_close(std::span(out).subspan(row * heads * head_dim, heads * head_dim),
                              expected_row(rows.sequence, position), 1e-5))
              << "sequence " << rows.sequence << ", position " << position;
  }
  /// A key (kind 2) or value (kind 3) as the cache has it, made once.
  const std::vector<float>& stored_at(uint64_t kind, int64_t sequence, int64_t position) {
    std::vector<float>& vector = stored_[{kind, sequence, position}];
    if (vector.empty())
      vector = stored_vectors(vector_of(kind, sequence, position, kv_heads * head_dim), dtype_,
                              head_dim);
    return vector;
  }
  /// Softmax over all visible positions, in double.
  std::vector<float> expected_row(int64_t sequence, int64_t position) {
    const auto q = vector_of(1, sequence, position, heads * head_dim);
    const auto owner = [&](int64_t at) {
      const auto parent = parents_.at(sequence);
      return parent && at < length(*parent) ? *parent : sequence;
    };
    std::vector<double> sum(heads * head_dim), weight(heads);
    const int64_t first = window_ > 0 ? std::max<int64_t>(0, position - window_ + 1) : 0;
    for (int64_t at = first; at <= position; ++at) {
      const std::vector<float>&k = stored_at(2, owner(at), at), &v = stored_at(3, owner(at), at);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t g = h / (heads / kv_heads);
        double score = 0;
        for (int64_t d = 0; d < head_dim; ++d)
          score += double{q[h * head_dim + d]} * k[g * head_dim + d];
        const double e = std::exp(score / std::sqrt(double{head_dim}));
        weight[h] += e;
        for (int64_t d = 0; d < head_dim; ++d) sum[h * head_dim + d] += e * v[g * head_dim + d];
      }
    }
    std::vector<float> expected;
    for (int64_t i = 0; i < heads * head_dim; ++i)
      expected.push_back(static_cast<float>(sum[i] / weight[i / head_dim]));
    return expected;
  }

  comm::Communicator& comm_;
  int64_t window_;
  int64_t passes_ = 0;
  DType dtype_;
  test::CpuCompute compute_;
  KvCache cache_;
  RingAttention attention_;
  std::map<int64_t, std::optional<int64_t>> parents_;
  std::map<std::tuple<uint64_t, int64_t, int64_t>, std::vector<float>> stored_;
};

}  // namespace pecia::context
