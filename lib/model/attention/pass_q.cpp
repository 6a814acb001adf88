// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_q.hpp"

#include <algorithm>

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

void PassQ::begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) {
  rows_ = &rows;
  const PassCalls calls(steps_, rows);
  visits_.assign(steps_.cache().kinds().size(), {});
  for (const int kind : steps_.kinds(windows)) {
    const SequenceRuns cached = calls.in_cache(steps_.kind(kind));
    for (int step = 0; step < rows.size(); ++step)
      visits_[kind].push_back(calls.call(rows.visiting(step), cached));
  }
}

int64_t PassQ::bytes_without_window(const PassRows& rows, const KvShape& shape) const {
  int64_t bytes = 0;
  for (int step = 0; step < rows.size(); ++step) {
    const int64_t visiting = rows.count(rows.visiting(step));
    if (step + 1 < rows.size()) bytes += visiting * steps_.query_bytes(shape);
    if (step > 0) bytes += visiting * steps_.result_bytes(shape);
  }
  return bytes;
}

void PassQ::run(int64_t layer, const LayerRows& x, const Partial& to) {
  comm::Communicator& ring = steps_.ring();
  const PassRows& rows = *rows_;
  const auto& visits = visits_[steps_.cache().kind(layer)];
  const int size = rows.size(), rank = rows.index();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  TensorView travelling_q = size > 1 ? compute_.as_type(x.q, steps_.wire(), leaving_) : x.q;
  for (int step = 0; step < size; ++step) {
    const int owner = rows.visiting(step);
    std::unique_ptr<comm::Transfer> transfer;
    TensorView coming;
    if (step + 1 < size) {
      coming =
          steps_.queries(travelling_[step % 2], rows.count(rows.visiting(step + 1)), steps_.wire());
      transfer =
          compute_.start_send_receive(ring, bytes_of(travelling_q), right, bytes_of(coming), left);
    }
    if (step == 0)
      steps_.attend(layer, visits[0], x.q, steps_.cached(layer), to);
    else
      steps_.attend(layer, visits[step],
                    compute_.as_type(travelling_q, steps_.visitor_type(), visiting_),
                    steps_.cached(layer), steps_.partial(steps_.away(owner), rows.count(owner)));
    if (!transfer) break;
    steps_.wait(*transfer, "ring_pass_q", static_cast<int64_t>(bytes_of(travelling_q).size()));
    travelling_q = coming;
  }
  if (size == 1) return;

  std::vector<Partial> away, home;
  for (int other = 0; other < size; ++other) {
    away.push_back(steps_.partial(steps_.away(other), other == rank ? 0 : rows.count(other)));
    home.push_back(steps_.coming(steps_.home(other), other == rank ? 0 : x.q.rows()));
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size; ++other)
    if (other != rank) steps_.merge(home[other], to);
}

}  // namespace pecia::attention
