// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collectives on host memory, built of a communicator's exchanges.

#include "lib/ranks/comm/collective_steps.hpp"
#include "lib/ranks/comm/collectives.hpp"

namespace pecia::comm {

class HostCollectives : public Collectives {
 public:
  /// As Communicator::make_collectives. `group` outlives this object and every transfer.
  HostCollectives(Communicator& group, const RankLabels& labels, Sums sums = Sums::computed);
  HostCollectives(Communicator& group, std::vector<int> server_of_rank, Sums sums = Sums::computed)
      : HostCollectives(group, RankLabels{std::move(server_of_rank)}, sums) {}
  ~HostCollectives() override;

  Route route() const override;
  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override;
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override;
  std::unique_ptr<Transfer> start_all_reduce(Addends values) override;
  void progress() override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace pecia::comm
