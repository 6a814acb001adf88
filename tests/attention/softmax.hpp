// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of attention for tests: vectors that are functions of their tokens, and softmax over all
/// keys at once, in double.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "lib/ranks/parallel/kv_map.hpp"
#include "tests/attention/stored_vectors.hpp"
#include "tests/support/compare.hpp"

namespace pecia::attention {

using parallel::AttentionExchange;
using parallel::PassSequence;

inline constexpr int64_t heads = 4, kv_heads = 2, head_dim = 8, capacity = 4000;

/// Vector of a token: a function of its kind, sequence and position, so any rank can make any
/// rank's.
inline std::vector<float> vector_of(uint64_t kind, int64_t sequence, int64_t position,
                                    int64_t count) {
  return test::random_floats(
      count, kind * 1'000'003 + static_cast<uint64_t>(sequence * 65'537 + position));
}

/// The vectors of one rank's rows in a pass.
class Vectors {
 public:
  Vectors(const std::vector<PassSequence>& pass, const parallel::Team& team, int index) {
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    for (const PassSequence& of : pass)
      for (const auto& range : rows_of(of, team, index))
        for (int64_t position = range.begin; position < range.end; ++position) {
          rows.emplace_back(of.sequence, position);
          append(q_, vector_of(1, of.sequence, position, heads * head_dim));
          append(k_, vector_of(2, of.sequence, position, kv_heads * head_dim));
          append(v_, vector_of(3, of.sequence, position, kv_heads * head_dim));
        }
    results.assign(q_.size(), NAN);
  }

  TensorView q() { return view(q_, heads); }
  TensorView k() { return view(k_, kv_heads); }
  TensorView v() { return view(v_, kv_heads); }
  TensorView out() { return view(results, heads); }

  std::vector<std::pair<int64_t, int64_t>> rows;  ///< sequences and positions
  std::vector<float> results;                     ///< in `out`

 private:
  TensorView view(std::vector<float>& data, int64_t count) const {
    return {static_cast<void*>(data.data()), DType::fp32, {std::ssize(rows), count, head_dim}};
  }
  std::vector<float> q_, k_, v_;
};

class Softmax {
 public:
  Softmax(kernels::Window window, DType stored_as) : window_(window), dtype_(stored_as) {}

  void add(int64_t sequence, std::optional<int64_t> parent) { parents_[sequence] = parent; }

  /// Checks every row's results. `map` has the pass.
  void check(const parallel::KvMap& map, const Vectors& of) {
    for (size_t row = 0; row < of.rows.size(); ++row) {
      const auto [sequence, position] = of.rows[row];
      ASSERT_TRUE(
          test::all_close(std::span(of.results).subspan(row * heads * head_dim, heads * head_dim),
                          expected_row(map, sequence, position), 1e-5))
          << "sequence " << sequence << ", position " << position;
    }
  }

 private:
  /// A key (kind 2) or value (kind 3) as the cache has it, made once.
  const std::vector<float>& stored_at(uint64_t kind, int64_t sequence, int64_t position) {
    std::vector<float>& vector = stored_[{kind, sequence, position}];
    if (vector.empty())
      vector = stored_vectors(vector_of(kind, sequence, position, kv_heads * head_dim), dtype_,
                              head_dim);
    return vector;
  }
  /// Softmax over all visible positions.
  std::vector<float> expected_row(const parallel::KvMap& map, int64_t sequence, int64_t position) {
    const auto q = vector_of(1, sequence, position, heads * head_dim);
    const auto owner = [&](int64_t at) {
      const auto parent = parents_.at(sequence);
      return parent && at < map.length(*parent) ? *parent : sequence;
    };
    std::vector<double> sum(heads * head_dim), weight(heads);
    const int64_t first = std::max<int64_t>(0, window_.first_seen(position));
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

  kernels::Window window_;
  DType dtype_;
  std::map<int64_t, std::optional<int64_t>> parents_;
  std::map<std::tuple<uint64_t, int64_t, int64_t>, std::vector<float>> stored_;
};

}  // namespace pecia::attention
