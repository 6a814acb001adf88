// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank of two instances with states of recurrent layers, without a model.

#include <cstring>
#include <vector>

#include "lib/model/attention/kv_parking.hpp"
#include "lib/model/recurrence/state_snapshots.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::recurrence {

struct StatePlace {
  explicit StatePlace(const StateShape& shape, int instance = 1,
                      attention::ParkingPlaces places = {})
      : ledger(cache, 2, instance),
        states(shape, 4, false, *owned.device),
        parking(ledger, cache, compute, std::move(places), &snapshots) {}

  void begin(int64_t sequence, int64_t tokens, std::optional<int64_t> parent = {}) {
    ledger.add(sequence, {100, 100}, parent);
    read(sequence, tokens);
  }
  /// Rank 1 computes the tokens.
  void read(int64_t sequence, int64_t tokens, int32_t owner = 1) {
    const int64_t length = ledger.map().length(sequence);
    for (int64_t i = 0; i < tokens; ++i)
      ledger.append({sequence, length + i, 1, owner, 0}, parallel::team_of_all(2));
    ledger.settle();
  }
  /// Gives the sequence a state of numbers that follow from `seed`.
  void fill(int64_t sequence, float seed) {
    std::vector<float> numbers(states.shape().bytes() / 4);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = seed + static_cast<float>(i);
    snapshots.copy_in(sequence, std::as_bytes(std::span(numbers)));
  }
  std::vector<float> state(int64_t sequence) const {
    std::vector<float> numbers(snapshots.bytes(sequence) / 4);
    snapshots.copy_out(sequence, std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }

  test::CpuCompute owned{1, kernels::make_reference_backend()};
  attention::Compute compute = owned;
  attention::KvCache cache{{1, 1, 4, DType::fp32}, 1000, compute.device};
  attention::KvLedger ledger;
  RecurrentStates states;
  StateSnapshots snapshots{states, ledger, compute};
  attention::KvParking parking;
};

}  // namespace pecia::recurrence
