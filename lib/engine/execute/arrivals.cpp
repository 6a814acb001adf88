// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/arrivals.hpp"

#include <algorithm>

namespace pecia::execute {

ArrivalSource::ArrivalSource(const batch::Inputs& inputs, const io::ResultsFile& results,
                             job::Order order, comm::SharedCounters& claims)
    : inputs_(inputs),
      results_(results),
      order_(order),
      claims_(claims),
      open_(open_requests(inputs, results)),
      arrived_turns_(inputs.num_turns()) {
  std::stable_sort(
      open_.begin(), open_.end(), [&](const batch::InputRequest* a, const batch::InputRequest* b) {
        return inputs.prompt(*a).arrival_s.value() < inputs.prompt(*b).arrival_s.value();
      });
  for (const batch::InputRequest* request : open_)
    arrived_turns_ -= static_cast<int64_t>(inputs.prompt(*request).turns.size());
}

double ArrivalSource::arrival(size_t index) const {
  return inputs_.prompt(*open_[index]).arrival_s.value();
}

/// The number of the request's counter.
int64_t ArrivalSource::claim(size_t index) const {
  return open_[index] - inputs_.requests().data();
}

std::optional<batch::Request> ArrivalSource::take(const schedule::Scheduler& scheduler,
                                                  double now) {
  for (; coming_ < open_.size() && arrival(coming_) <= now; ++coming_) {
    waiting_.emplace(order_ == job::Order::longest_first ? -open_[coming_]->work : 0, coming_);
    arrived_turns_ += static_cast<int64_t>(inputs_.prompt(*open_[coming_]).turns.size());
  }
  for (; !waiting_.empty(); waiting_.erase(waiting_.begin())) {
    const size_t index = waiting_.begin()->second;
    if (claims_.value(claim(index)) > 0) continue;
    if (!head_ || head_->first != index)
      head_.emplace(index, load_open(inputs_, results_, *open_[index]));
    if (!scheduler.has_room_for(head_->second)) return {};
    if (claims_.add(claim(index), 1) > 0) continue;
    waiting_.erase(waiting_.begin());
    batch::Request taken = std::move(head_->second);
    head_.reset();
    return taken;
  }
  return {};
}

std::optional<double> ArrivalSource::next_arrival() const {
  if (coming_ == open_.size()) return {};
  return arrival(coming_);
}

}  // namespace pecia::execute
