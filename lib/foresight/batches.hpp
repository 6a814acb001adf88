// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A batch as each layout has it: requests that begin alike are joined as a run joins them, and into
/// how many pieces a group is divided depends on the layout.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/batch/simulated_requests.hpp"
#include "lib/foresight/batch_end.hpp"
#include "lib/resources/prefix_sharing.hpp"

namespace pecia::foresight {

class Batches {
 public:
  using Requests = std::vector<schedule::SimulatedRequest>;
  /// What of a batch is played: indices into its requests, in their order.
  using Part = std::function<std::vector<size_t>(const Requests&)>;
  /// Changes requests, as to shorten their answers.
  using Edit = std::function<void(Requests&)>;

  /// The same requests, at least one, in every layout: they have no tokens that could be alike.
  Batches(Requests requests, const model::ModelConfig& config);
  /// The requests of a job that can run, at least one. Where requests that begin alike may be joined,
  /// all prompts are read. `part` chooses among the requests as one replica would join them.
  /// `inputs` and `config` outlive this object, and the inputs are nobody else's meanwhile.
  Batches(const job::Job& job, batch::Inputs& inputs, const model::ModelConfig& config,
          const Part& part = {}, Edit edit = {});
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  /// Where nothing is joined.
  const Batch& alone() const { return *alone_; }
  /// On these resources, with degrees and modes, of this job or one that differs in what it takes of
  /// the machine alone. The reference stays valid.
  const Batch& of(const job::Job& job, const resources::Resources& resources);
  /// Why requests do not share what they begin with; "": they do.
  std::string why_not_shared(const job::Job& job, const resources::Resources& resources) const;

 private:
  /// The requests that are played, in the groups that the inputs have.
  Requests played(const job::Job::Batch& of) const;
  const batch::PrefixGroups& groups(int64_t block);

  const model::ModelConfig& config_;
  batch::Inputs* inputs_ = nullptr;
  Edit edit_;
  std::vector<bool> chosen_;  ///< rows of the requests that are played; empty: all are
  std::unique_ptr<const Batch> alone_;
  std::map<int64_t, batch::PrefixGroups> groups_;            ///< by block
  std::map<std::pair<int64_t, int>, const Batch> by_rules_;  ///< by block and parts
};

}  // namespace pecia::foresight
