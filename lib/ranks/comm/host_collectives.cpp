// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/host_collectives.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/collective_check.hpp"
#include "lib/ranks/comm/wait.hpp"

namespace pecia::comm {
namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

void check_blocks(const Addends& partial, std::span<const int64_t> counts, const Addends& mine,
                  const Communicator& group) {
  PECIA_CHECK(counts.size() == static_cast<size_t>(group.size()), "{} counts for {} ranks",
              counts.size(), group.size());
  int64_t own_offset = 0, offset = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const int64_t left = partial.count() - offset;
    PECIA_CHECK(counts[rank] >= 0 && counts[rank] <= left, "rank {}'s block of {} numbers, {} left",
                rank, counts[rank], left);
    if (rank == group.rank()) own_offset = offset;
    offset += counts[rank];
  }
  PECIA_CHECK(offset == partial.count(), "blocks of {} numbers in all, of {}", offset,
              partial.count());
  PECIA_CHECK(mine.count() == counts[group.rank()] && mine.dtype() == partial.dtype(),
              "{} numbers of {} for a block of {} of {}", mine.count(), name_of(mine.dtype()),
              counts[group.rank()], name_of(partial.dtype()));
  PECIA_CHECK(
      !overlap(mine.bytes(), partial.bytes()) || mine.data() == partial.part(own_offset, 0).data(),
      "the sum overlaps the partials elsewhere than at its own block");
}

const RankLabels& checked(const RankLabels& labels, const Communicator& group) {
  PECIA_CHECK(labels.servers.size() == static_cast<size_t>(group.size()),
              "servers of {} ranks, of {}", labels.servers.size(), group.size());
  return labels;
}

template <typename Sizes>
int64_t largest(const Sizes& sizes) {
  return sizes.empty() ? 0 : *std::ranges::max_element(sizes);
}

}  // namespace

class HostCollectives::State {
 public:
  class Running;

  State(Communicator& group_of, const RankLabels& labels, Sums made)
      : group(group_of), trees(checked(labels, group)), sums(made) {}

  std::vector<std::byte> borrow_scratch(int64_t bytes) {
    std::vector<std::byte> scratch;
    if (bytes == 0) return scratch;
    if (!free_scratch.empty()) {
      scratch = std::move(free_scratch.back());
      free_scratch.pop_back();
    }
    if (std::ssize(scratch) < bytes) {
      scratch.clear();  // so that resize copies nothing
      scratch.resize(bytes);
    }
    return scratch;
  }

  /// `scratch` gets the memory that the steps need; it may be moved, but has to last as long as
  /// they do.
  std::vector<Step> reduce_scatter(const Addends& partial, std::span<const int64_t> counts,
                                   const Addends& mine, std::vector<std::byte>& scratch) {
    const GroupTree& tree = trees.of(largest(counts) * size_of(partial.dtype()));
    const int64_t count = reduce_scatter_scratch(tree, group.rank(), counts);
    if (sums == Sums::computed) scratch = borrow_scratch(count * size_of(partial.dtype()));
    // Where sums are left out nobody writes or reads what arrives, and any address will do.
    std::byte* const place = sums == Sums::computed ? scratch.data() : partial.data();
    return reduce_scatter_steps(tree, group.rank(), partial, counts, mine,
                                {place, partial.dtype(), count}, sums);
  }

  static std::unique_ptr<Transfer> start(const std::shared_ptr<State>& state, const char* name,
                                         std::vector<Step> steps, std::vector<std::byte> scratch);
  void progress() const;

  Communicator& group;
  const GroupTrees trees;
  const Sums sums;
  std::vector<Running*> running;  ///< unfinished and finished transfers, until they are destroyed
  std::vector<std::vector<std::byte>> free_scratch;
  /// Scratch of transfers that were destroyed unfinished; messages may still arrive in it.
  std::vector<std::vector<std::byte>> abandoned_scratch;
};

/// One collective: its steps, and the exchange under way.
class HostCollectives::State::Running : public Transfer {
 public:
  Running(std::shared_ptr<State> state, const char* name, std::vector<Step> steps,
          std::vector<std::byte> scratch)
      : state_(std::move(state)),
        operation_{name, state_->group.next_operation()},
        steps_(std::move(steps)),
        scratch_(std::move(scratch)) {
    state_->running.push_back(this);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() override {
    std::erase(state_->running, this);
    if (!done_) state_->abandoned_scratch.push_back(std::move(scratch_));
  }

  bool test() override {
    while (!done_) {
      if (under_way_ != nullptr && !under_way_->test()) return false;
      under_way_.reset();
      if (next_ < steps_.size())
        start_next();
      else
        finish();
    }
    return true;
  }

  void wait() override {
    // Advances all transfers: another rank may wait first for the next exchange of another
    // transfer.
    wait_until(
        [this] {
          state_->progress();
          return done_;
        },
        [this] {
          return fmt::format("{} #{} with {}", operation_.name, operation_.number,
                             exchange_.peers());
        },
        [this](bool waits) { state_->group.show_wait(waits ? &operation_ : nullptr); },
        state_->group.wait_timeout());
  }

 private:
  void start_next() {
    exchange_ = steps_[next_++]();
    if (!exchange_.sends.empty() || !exchange_.receives.empty())
      under_way_ = state_->group.start_exchange(exchange_, operation_);
  }
  void finish() {
    done_ = true;
    if (!scratch_.empty()) state_->free_scratch.push_back(std::move(scratch_));
  }

  std::shared_ptr<State> state_;
  Operation operation_;
  std::vector<Step> steps_;
  size_t next_ = 0;
  std::vector<std::byte> scratch_;
  Exchange exchange_;
  std::unique_ptr<Transfer> under_way_;
  bool done_ = false;
};

void HostCollectives::State::progress() const {
  for (Running* one : running) one->test();
}

std::unique_ptr<Transfer> HostCollectives::State::start(const std::shared_ptr<State>& state,
                                                        const char* name, std::vector<Step> steps,
                                                        std::vector<std::byte> scratch) {
  auto one = std::make_unique<Running>(state, name, std::move(steps), std::move(scratch));
  one->test();
  return one;
}

HostCollectives::HostCollectives(Communicator& group, const RankLabels& labels, Sums sums)
    : state_(std::make_shared<State>(group, labels, sums)) {}
HostCollectives::~HostCollectives() = default;

Route HostCollectives::route() const {
  return state_->trees.by_servers().top() == 1 ? Route::flat : Route::hierarchical;
}

void HostCollectives::progress() {
  state_->progress();
}

std::unique_ptr<Transfer> HostCollectives::start_all_gather(
    std::vector<std::span<std::byte>> blocks) {
  const Communicator& group = state_->group;
  PECIA_CHECK(blocks.size() == static_cast<size_t>(group.size()), "{} blocks for {} ranks",
              blocks.size(), group.size());
  std::vector<int64_t> sizes;
  for (const auto& block : blocks) sizes.push_back(static_cast<int64_t>(block.size()));
  state_->group.check_same("all_gather", shape_of(sizes));
  return State::start(
      state_, "all_gather",
      all_gather_steps(state_->trees.of(largest(sizes)), group.rank(), std::move(blocks)), {});
}

std::unique_ptr<Transfer> HostCollectives::start_reduce_scatter(Addends partial,
                                                                std::span<const int64_t> counts,
                                                                Addends mine) {
  check_blocks(partial, counts, mine, state_->group);
  std::vector<int64_t> sizes(counts.begin(), counts.end());
  for (int64_t& size : sizes) size *= size_of(partial.dtype());
  state_->group.check_same("reduce_scatter", shape_of(sizes));
  std::vector<std::byte> scratch;
  auto steps = state_->reduce_scatter(partial, counts, mine, scratch);
  return State::start(state_, "reduce_scatter", std::move(steps), std::move(scratch));
}

std::unique_ptr<Transfer> HostCollectives::start_all_reduce(Addends values) {
  Communicator& group = state_->group;
  group.check_same("all_reduce", std::ssize(values.bytes()));
  const auto counts = equal_cuts(values.count(), group.size());
  std::vector<Addends> cuts;
  std::vector<std::span<std::byte>> blocks;
  for (int64_t offset = 0; const int64_t count : counts) {
    cuts.push_back(values.part(offset, count));
    blocks.push_back(cuts.back().bytes());
    offset += count;
  }
  std::vector<std::byte> scratch;
  auto steps = state_->reduce_scatter(values, counts, cuts[group.rank()], scratch);
  const GroupTree& tree = state_->trees.of(std::ssize(blocks.front()));
  for (Step& step : all_gather_steps(tree, group.rank(), std::move(blocks)))
    steps.push_back(std::move(step));
  return State::start(state_, "all_reduce", std::move(steps), std::move(scratch));
}

std::unique_ptr<Collectives> Communicator::make_collectives(const RankLabels& labels, SumOrder) {
  return std::make_unique<HostCollectives>(*this, labels);
}

std::unique_ptr<Collectives> Communicator::make_collectives(std::vector<int> server_of_rank,
                                                            SumOrder order) {
  return make_collectives(RankLabels{std::move(server_of_rank)}, order);
}

}  // namespace pecia::comm
