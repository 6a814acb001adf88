// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collectives on the host's memory, of a communicator's exchanges.

#include "lib/comm/collectives.hpp"

namespace pecia::comm {

class HostCollectives : public Collectives {
 public:
  /// Ranks of equal labels share a server; the labels are the same on every rank. All equal or all
  /// different means flat. `group` outlives this and every transfer.
  HostCollectives(Communicator& group, std::vector<int> server_of_rank);
  ~HostCollectives() override;

  Route route() const override;
  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override;
  std::unique_ptr<Transfer> start_reduce_scatter(std::span<const float> partial,
                                                 std::span<const int64_t> counts,
                                                 std::span<float> mine) override;
  std::unique_ptr<Transfer> start_all_reduce(std::span<float> values) override;
  void progress() override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

/// The labels as collectives use them: with all ranks on one server nothing is to be saved, and
/// one exchange does instead of two.
std::vector<int> labels_to_use(const Communicator& group, std::vector<int> labels);

/// How all_reduce cuts its values: lengths that differ by one at most, the longer ones first.
std::vector<int64_t> equal_cuts(int64_t total, int parts);

}  // namespace pecia::comm
