// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_sinks.hpp"

namespace pecia::attention {

using Pick = LevelLayout::Pick;

LevelSinks::LevelSinks(const Compute& compute, const KvCache& cache, AttentionSteps& steps)
    : compute_(compute),
      steps_(steps),
      shape_{cache.shape(), 0, DType::fp32},
      keys_(compute, cache.shape()),
      leaving_(compute.buffer()),
      coming_(compute.buffer()) {}

/// Where the sinks of sequences lie, and how many keys each rank gives.
void LevelSinks::find_places(const LevelPass& pass) {
  places_.clear();
  of_ranks_.assign(static_cast<size_t>(pass.ranks), 0);
  int64_t first = 0;
  for (const SequenceParts& sequence : pass.sequences) {
    const int rank = pass.ranks == 1 ? 0 : sequence.sink_part;
    const int64_t keys = sequence.sinks * shape_.kv.num_kv_heads;
    places_.push_back({rank, keys, first, of_ranks_[rank]});
    first += keys, of_ranks_[rank] += keys;
  }
}

void LevelSinks::start(const LevelPass& pass, const OwnAttention& sinks, int64_t layer,
                       const LevelExchange& exchange, const TokenLists& lists) {
  find_places(pass);
  keys_.reserve(sinks.keys);
  RowPicks picks;
  const auto pick = [&](const std::vector<Pick>& cached, const std::vector<Pick>& rows,
                        const KeyRows& to) {
    exchange.pick_keys(picks, layer, TokenLists::cached_keys, cached, lists, to);
    exchange.pick_keys(picks, layer, TokenLists::new_keys, rows, lists, to);
  };
  pick(sinks.cached, sinks.rows, keys_.rows(0, sinks.keys));

  comm::Exchange messages;
  sent_ = 0;
  if (const int64_t own = of_ranks_[pass.rank]; own > 0 && pass.ranks > 1) {
    leaving_.reserve(shape_.room(own, 0));
    const TokenMessage message = shape_.at(leaving_.as<std::byte>(), own, 0);
    pick(in_message(sinks.cached), in_message(sinks.rows), message.keys);
    for (int to = 0; to < pass.ranks; ++to)
      if (to != pass.rank) messages.sends.push_back({message.bytes, to});
    sent_ = std::ssize(message.bytes) * (pass.ranks - 1);
  }
  picks.run(compute_);

  int64_t bytes = 0;
  for (int rank = 0; rank < pass.ranks; ++rank)
    if (rank != pass.rank) bytes += shape_.room(of_ranks_[rank], 0);
  coming_.reserve(bytes);
  messages_.clear();
  int64_t end = 0;
  for (int rank = 0; rank < pass.ranks; ++rank) {
    const int64_t keys = rank == pass.rank ? 0 : of_ranks_[rank];
    messages_.push_back(shape_.at(coming_.as<std::byte>() + end, keys, 0));
    end += shape_.room(keys, 0);
    if (keys > 0) messages.receives.push_back({messages_.back().bytes, rank});
  }
  comm::Communicator& ring = steps_.ring();
  transfer_ = ring.start_exchange(messages, {"level_sinks", ring.next_operation()});
}

/// The same tokens, and where they go in this rank's message.
std::vector<Pick> LevelSinks::in_message(std::vector<Pick> picks) const {
  for (Pick& pick : picks) {
    const Place& place = places_[pick.sequence];
    pick.to += place.in_message - place.first;
  }
  return picks;
}

const KeyArena& LevelSinks::wait(int rank) {
  steps_.wait(*transfer_, "level_sinks", sent_);
  RowPicks picks;
  for (const Place& place : places_)
    if (place.rank != rank && place.keys > 0)
      picks.add(messages_[place.rank].keys.slice(place.in_message, place.keys), {},
                keys_.rows(place.first, place.keys));
  picks.run(compute_);
  return keys_;
}

}  // namespace pecia::attention
