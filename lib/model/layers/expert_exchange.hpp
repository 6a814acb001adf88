// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The all-to-alls of expert parallelism. Rows travel to the ranks that hold their experts, each
/// row once to a rank, and the sums that these ranks make of it come back. Whoever holds a row's
/// experts takes it: no rank has a limit, and no row is left out.
///
/// First every peer gets the choices of all rows, k experts and their weights for each. So all know
/// what will travel, and no counts are sent.
///
/// The host decides which rows travel. On a device it waits for the choices.

#include <memory>
#include <span>
#include <vector>

#include "kernels/api/linear.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/parallel/expert_routes.hpp"

namespace pecia::model {

class ExpertExchange {
 public:
  /// `wire`: fp32 or bf16, the type in which rows and sums of fp32 travel.
  explicit ExpertExchange(const attention::Compute& compute, DType wire = DType::fp32);

  /// Begins a pass: rows travel in `group`, whose ranks hold the experts `held`, by rank.
  void begin_pass(comm::Communicator& group, std::vector<parallel::RowRange> held);

  /// What the experts here are to multiply.
  struct Arrived {
    TensorView rows;     ///< [arrived, hidden], of all ranks, in their order
    TensorView chosen;   ///< [arrived, k] int32
    TensorView weights;  ///< [arrived, k] fp32
    int64_t pairs = 0;   ///< how many of `chosen` are held here
  };

  /// Collective over the group, as is bring_back, which follows it. Sends the own rows [rows, any]
  /// with their choices, and returns what has come. `counts` is how many rows each rank has.
  Arrived send(const TensorView& rows, const TensorView& chosen, const TensorView& weights,
               std::span<const int64_t> counts);

  /// Sends `sums` [arrived, width], fp32, dense, back to where the rows are. There it writes the sum
  /// of what the ranks made of each own row to `to` [rows, width], fp32, or adds it. Sums are in the
  /// order of the ranks.
  void bring_back(const TensorView& sums, const TensorView& to, kernels::Accumulate accumulate);

 private:
  using Choices = std::span<parallel::ExpertChoice>;
  using Indices = std::vector<int32_t>;

  void gather_choices(const TensorView& chosen, const TensorView& weights,
                      std::span<const int64_t> counts);
  Choices choices_of(int rank);
  Arrived with_choices(const TensorView& rows);
  /// Exchanges blocks of rows: `sent` rows of `from` to each rank, `received` rows of `to` from each.
  void exchange(const char* name, const TensorView& from, std::span<const int64_t> sent,
                const TensorView& to, std::span<const int64_t> received);

  attention::Compute compute_;
  DType wire_;
  device::Buffer leaving_, arrived_, chosen_, weights_, returned_;
  device::Buffer rounded_, widened_;  ///< where rows or sums do not travel in their type

  // The pass.
  comm::Communicator* group_ = nullptr;
  std::vector<parallel::RowRange> held_;

  // The rows under way.
  int64_t per_row_ = 0;
  std::vector<int64_t> begins_;  ///< where each rank's rows begin among those of all; then the end
  std::vector<parallel::ExpertChoice> choices_;    ///< of all rows
  std::vector<Indices> leaves_;                    ///< own rows that go to each rank
  std::vector<Indices> comes_;                     ///< each rank's rows that come here
  std::vector<int64_t> num_leaving_, num_coming_;  ///< how many these are
  Indices chosen_on_host_, which_;
  std::vector<float> weights_on_host_;
};

}  // namespace pecia::model
