// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rates of ops by their sizes, from which the description of a machine is made.

#include <functional>
#include <map>
#include <vector>

#include "lib/settle/measure/op_sizes.hpp"
#include "lib/settle/measure/op_timer.hpp"
#include "lib/settle/measure/rates_by_size.hpp"

namespace pecia::measure {

/// What ops take on each rank while all ranks do the same. Each call measures again and returns the
/// best of all it has found so far: neighbours may take a part of the cores at any moment, and
/// curves of one moment each would have their shape. Every call is collective over `world`, which
/// outlives this object; every rank gets the same.
class OpRates {
 public:
  OpRates(comm::Communicator& world, const attention::Compute& compute, OpSizes sizes);

  /// Seconds of an op that has nothing to do.
  double smallest_op() { return elementwise_s(3 * 64 * size_of(DType::fp32)); }
  /// The same inside a step of many ops, as a pass of few rows has them on a GPU.
  double smallest_op_in_step();
  /// Seconds from giving an op that has nothing to do until the host knows of its end.
  double op_and_wait();

  /// FLOP/s by rows, depth and width.
  std::vector<RatesBySize> products();
  /// FLOP/s by rows, for some depths. Queries see all tokens before the new ones and half of these,
  /// as in a prompt; so few keys go with few rows.
  std::vector<cluster_files::Slice> attention();
  /// FLOP/s of a recurrence of many heads.
  double recurrence();
  /// Seconds of a row in a recurrence of a few columns, which one core takes in.
  double recurrent_row_s();
  /// B/s of keys and values that no cache holds, by their bytes: one query computes little.
  RatesBySize stream();
  /// B/s of products of one row, by the bytes of their weights.
  RatesBySize weights();
  /// B/s of an op that only reads and writes, by its bytes.
  RatesBySize elementwise();

  /// Shares of the rate of dense weights, by bytes of a row of a slice of them. On CPUs.
  RatesBySize pieces();
  /// Seconds of one exchange of a sum. On CPUs.
  double exchange_s();
  /// Spread over the rounds, as what others do to this machine changes within seconds. On CPUs.
  struct Shared {
    double lasting = 1;  ///< share of the best rate that all have in the mean
    double alone = 1;    ///< times the rate while the others wait
  };
  Shared computing() { return products_of(sizes_.usual_rows); }
  Shared waiting_for_memory() { return products_of(1); }

 private:
  using Key = std::vector<int64_t>;

  Shared products_of(int64_t rows);
  double best(const Key& key, const std::function<double()>& measure);
  double elementwise_s(int64_t bytes);
  double beside_op(double seconds) const;

  OpTimer timer_;
  OpSizes sizes_;
  bool has_others_;
  std::vector<double> exchanges_s_;
  std::map<Key, double> found_;
  std::map<int64_t, Stretches> stretches_;  ///< by rows
  double smallest_s_;
};

}  // namespace pecia::measure
