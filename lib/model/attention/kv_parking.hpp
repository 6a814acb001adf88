// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a rank keeps keys and values of sequences that have yielded (schedule/demand.hpp): memory
/// of the host, and beyond what there is of it, files without a name. They come back to the cache bit by
/// bit, and so does what the rank has beside them. Nothing of them outlives the process.

#include <filesystem>
#include <limits>
#include <unordered_map>
#include <vector>

#include "lib/files/disk/file.hpp"
#include "lib/model/attention/beside_keys.hpp"
#include "lib/model/attention/host_tokens.hpp"
#include "lib/model/attention/kv_ledger.hpp"

namespace pecia::attention {

struct ParkingPlaces {
  int64_t host_bytes = std::numeric_limits<int64_t>::max();  ///< of this rank, outside of its cache
  std::filesystem::path folder = {};  ///< for what is beyond; "": there is none
};

class KvParking {
 public:
  /// All references must outlive this object. `beside` (null: nothing) moves with the keys.
  KvParking(KvLedger& ledger, KvCache& cache, const Compute& compute, ParkingPlaces places,
            BesideKeys* beside = nullptr)
      : ledger_(ledger),
        cache_(cache),
        compute_(compute),
        places_(std::move(places)),
        beside_(beside) {}

  /// Takes a sequence's keys and values out of the cache and gives its slots back. Returns the bytes
  /// that moved. Throws SystemError, naming the folder and the bytes, where there is no room.
  int64_t park(parallel::SequenceId sequence);
  /// Gives the sequence reserved[i] slots on instance i, and puts its keys and values into them.
  int64_t bring_back(parallel::SequenceId sequence, const std::vector<int64_t>& reserved);
  /// The sequence ends while it is parked, or is not parked.
  void forget(parallel::SequenceId sequence);

  int64_t host_bytes() const { return host_bytes_; }  ///< used now

 private:
  struct Parked {
    device::Buffer memory;
    std::optional<io::File> file;
    int64_t bytes = 0;
    int64_t beside = 0;  ///< of these, what is not keys and values
  };
  /// Slots of a sequence's tokens on this rank, in layers that keep all tokens and in the others.
  struct Slots {
    std::vector<parallel::SlotRange> all, recent;
  };
  Slots slots_of(parallel::SequenceId sequence) const;
  int64_t bytes_of(const Slots& slots) const;
  template <typename Move>
  void copy(CopyDirection direction, const Slots& slots, const Move& move) const;
  io::File make_file(int64_t bytes) const;

  KvLedger& ledger_;
  KvCache& cache_;
  const Compute& compute_;
  ParkingPlaces places_;
  BesideKeys* beside_;
  int64_t host_bytes_ = 0;
  std::unordered_map<parallel::SequenceId, Parked> parked_;
};

}  // namespace pecia::attention
