#include "lib/runtime/source.hpp"

#include <algorithm>

namespace pecia::runtime {
namespace {

bool settled(io::TurnState state) {
  return state == io::TurnState::done || state == io::TurnState::failed;
}

}  // namespace

Source::Source(const Inputs& inputs, const io::ResultsFile& results, Order order,
               comm::SharedCounter& counter)
    : inputs_(inputs), results_(results), counter_(counter) {
  for (const InputRequest& request : inputs.requests()) {
    const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
    bool done = true;
    for (int64_t turn = 0; turn < turns; ++turn)
      done = done && settled(results.state(request.first_row + turn));
    if (!done) open_.push_back(&request);
  }
  if (order == Order::longest_first)
    std::stable_sort(open_.begin(), open_.end(), [](const InputRequest* a, const InputRequest* b) {
      return a->work > b->work;
    });
}

std::optional<Request> Source::take() {
  if (exhausted_) return {};
  const int64_t index = counter_.next();
  exhausted_ = index >= static_cast<int64_t>(open_.size());
  if (exhausted_) return {};
  Request request = inputs_.load(*open_[index]);
  for (Turn& turn : request.turns) {
    const io::TurnState state = results_.state(turn.row);
    if (state == io::TurnState::open) continue;
    io::TurnResult earlier = results_.read(turn.row);
    turn.recorded = settled(state);
    if (state == io::TurnState::failed) {
      turn.refused = earlier.error;
    } else {
      turn.finished = state == io::TurnState::done;
      turn.answer = std::move(earlier);
    }
  }
  return request;
}

}  // namespace pecia::runtime
