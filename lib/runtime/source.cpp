#include "lib/runtime/source.hpp"

#include <algorithm>

namespace pecia::runtime {
namespace {

bool settled(io::TurnState state) {
  return state == io::TurnState::done || state == io::TurnState::failed;
}

}  // namespace

std::vector<const InputRequest*> open_requests(const Inputs& inputs,
                                               const io::ResultsFile& results) {
  std::vector<const InputRequest*> open;
  for (const InputRequest& request : inputs.requests()) {
    const auto turns = static_cast<int64_t>(inputs.prompt(request).turns.size());
    bool done = true;
    for (int64_t turn = 0; turn < turns; ++turn)
      done = done && settled(results.state(request.first_row + turn));
    if (!done) open.push_back(&request);
  }
  return open;
}

Request load_open(const Inputs& inputs, const io::ResultsFile& results,
                  const InputRequest& request) {
  Request loaded = inputs.load(request);
  for (Turn& turn : loaded.turns) {
    const io::TurnState state = results.state(turn.row);
    if (state == io::TurnState::open) continue;
    io::TurnResult earlier = results.read(turn.row);
    turn.recorded = settled(state);
    if (state == io::TurnState::failed) {
      turn.refused = earlier.error;
    } else {
      turn.finished = state == io::TurnState::done;
      turn.answer = std::move(earlier);
    }
  }
  return loaded;
}

ListSource::ListSource(const Inputs& inputs, const io::ResultsFile& results, Order order,
                       comm::SharedCounter& counter)
    : inputs_(inputs), results_(results), counter_(counter), open_(open_requests(inputs, results)) {
  if (order == Order::longest_first)
    std::stable_sort(open_.begin(), open_.end(), [](const InputRequest* a, const InputRequest* b) {
      return a->work > b->work;
    });
}

std::optional<Request> ListSource::take(const Scheduler& scheduler, double) {
  if (exhausted_ || !scheduler.wants_more()) return {};
  const int64_t index = counter_.next();
  exhausted_ = index >= static_cast<int64_t>(open_.size());
  if (exhausted_) return {};
  return load_open(inputs_, results_, *open_[index]);
}

}  // namespace pecia::runtime
