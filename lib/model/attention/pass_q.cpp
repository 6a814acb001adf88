// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_q.hpp"

#include <algorithm>

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

void PassQ::begin_pass(const PassRows& rows, std::span<const int64_t> windows) {
  rows_ = &rows;
  const PassCalls calls(steps_, rows);
  for (auto& visits : visits_) visits.clear();
  for (const Retention retention : rows.retentions(windows)) {
    std::vector<AttentionCall>& visits = visits_[static_cast<size_t>(retention)];
    const SequenceRuns cached = calls.in_cache(retention);
    for (int step = 0; step < rows.size(); ++step)
      visits.push_back(calls.call(rows.visiting(step), cached));
  }
}

int64_t PassQ::bytes_without_window(const PassRows& rows) const {
  int64_t bytes = 0;
  for (int step = 0; step < rows.size(); ++step) {
    const int64_t visiting = rows.count(rows.visiting(step));
    if (step + 1 < rows.size()) bytes += visiting * steps_.query_bytes();
    if (step > 0) bytes += visiting * steps_.result_bytes();
  }
  return bytes;
}

void PassQ::run(int64_t layer, const LayerRows& x, const Partial& to) {
  comm::Communicator& ring = steps_.ring();
  const PassRows& rows = *rows_;
  const auto& visits = visits_[static_cast<size_t>(steps_.cache().retention(layer))];
  const int size = rows.size(), rank = rows.index();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  TensorView visiting_q = x.q;
  for (int step = 0; step < size; ++step) {
    const int owner = rows.visiting(step);
    std::unique_ptr<comm::Transfer> transfer;
    TensorView coming;
    if (step + 1 < size) {
      coming = steps_.queries(travelling_[step % 2], rows.count(rows.visiting(step + 1)));
      transfer = ring.start_send_receive(bytes_of(visiting_q), right, bytes_of(coming), left);
    }
    steps_.attend(layer, visits[step], visiting_q, steps_.cached(layer),
                  step == 0 ? to : steps_.partial(steps_.away(owner), rows.count(owner)));
    if (!transfer) break;
    steps_.wait(*transfer, "ring_pass_q", static_cast<int64_t>(bytes_of(visiting_q).size()));
    visiting_q = coming;
  }
  if (size == 1) return;

  std::vector<Partial> away, home;
  for (int other = 0; other < size; ++other) {
    away.push_back(steps_.partial(steps_.away(other), other == rank ? 0 : rows.count(other)));
    home.push_back(steps_.partial(steps_.home(other), other == rank ? 0 : x.q.rows()));
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size; ++other)
    if (other != rank) steps_.merge(home[other], to);
}

}  // namespace pecia::attention
