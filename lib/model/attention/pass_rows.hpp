// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The rows of a pass as one rank sees them: the positions of all ranks' rows, the cache slots of
/// its own, who holds which keys that the rows see, and what travels of sequences that the pass
/// places. Ranks are places in the team's ring.

#include <array>
#include <map>
#include <span>
#include <vector>

#include "lib/model/attention/kv_ledger.hpp"
#include "lib/ranks/parallel/halo.hpp"
#include "lib/ranks/parallel/state_route.hpp"

namespace pecia::attention {

/// Rows of one sequence.
struct SequenceRows {
  parallel::SequenceId sequence;
  std::vector<parallel::GlobalRange> ranges;  ///< their positions

  int64_t count() const;
  void append_to(std::vector<int64_t>& positions) const;
};

/// Returns the sequences whose keys the pass needs, in ascending order. They are its own sequences
/// and the parents that these begin with.
std::vector<parallel::SequenceId> sequences_seen(const std::vector<parallel::PassSequence>& pass,
                                                 const parallel::KvMap& map);

class PassRows {
 public:
  /// The rows of a rank without a team: it has none, and only positions and slots may be called.
  PassRows() = default;
  /// Takes slots for this rank's rows, and gives the rows of all teams to the ledger, which must
  /// outlive this object. Throws InvalidArgument for what check_teams or KvMap::append refuses.
  PassRows(KvLedger& ledger, const std::vector<parallel::TeamPass>& teams);

  bool has_team() const { return size() > 0; }
  const parallel::Team& team() const { return own_.team; }
  const std::vector<parallel::PassSequence>& sequences() const { return own_.rows; }
  int size() const { return team().size(); }
  int index() const { return index_; }  ///< this rank's
  /// The rank whose keys or queries are here at a step of the ring.
  int visiting(int step) const;

  /// The global positions of this rank's rows, in the order of q, k, v and out; or of a rank's.
  const std::vector<int64_t>& positions() const { return positions_[index_]; }
  const std::vector<int64_t>& positions(int rank) const { return positions_[rank]; }
  int64_t count() const { return count(index_); }
  int64_t count(int rank) const { return static_cast<int64_t>(positions_[rank].size()); }
  /// The rows of a rank by sequence, one entry for each sequence of the pass.
  std::vector<SequenceRows> rows_at(int rank) const;

  /// The slots of the cache for the rows that are stored here, one after the other: of layers that
  /// keep all tokens, or recent ones.
  const std::vector<int64_t>& slots(Retention retention = Retention::all) const {
    return slots_[static_cast<size_t>(retention)];
  }
  /// The rows that are stored here: all but those of sequences that the pass places.
  const std::vector<parallel::RowRange>& stored() const { return stored_; }
  /// Virtual ranks store in each layer, also where there are no rows.
  void store_all() { stored_ = {{0, count()}}; }
  bool stores_all() const {
    return stored_.size() == 1 && stored_.front() == parallel::RowRange{0, count()};
  }

  /// The sequences with keys that the pass needs, sorted, and the place of one of them there.
  const std::vector<parallel::SequenceId>& key_sequences() const { return key_sequences_; }
  size_t key_index(parallel::SequenceId sequence) const;
  parallel::Lineage lineage(parallel::SequenceId sequence) const {
    return ledger_->map().lineage(sequence);
  }
  /// Tokens of a sequence at a rank as they are attended: where they are cached, or what travels
  /// from there if the pass places them.
  int64_t held(parallel::SequenceId sequence, int rank) const;
  const std::vector<parallel::StridedRange>& ranges(parallel::SequenceId sequence, int rank) const;
  /// The held tokens that layers with this retention keep, of a sequence or of all key_sequences.
  int64_t kept(Retention retention, parallel::SequenceId sequence, int rank) const;
  int64_t kept(Retention retention, int rank) const;
  std::vector<parallel::StridedRange> kept_ranges(Retention retention,
                                                  parallel::SequenceId sequence, int rank) const;

  /// Where the pass says that keys go, and what travels of them, by rank; null for sequences that
  /// it does not place.
  const parallel::Placement* placement(parallel::SequenceId sequence) const {
    return own_.placement(sequence);
  }
  const std::vector<parallel::TravellingTokens>* placed(parallel::SequenceId sequence) const;
  bool places_any() const { return !placed_.empty(); }

  /// By sequence of the pass: who has the states of recurrent layers before it.
  const std::vector<parallel::StateOrigin>& state_origins() const { return state_origins_; }

  const KvLedger& ledger() const { return *ledger_; }

 private:
  void plan(KvLedger& ledger);
  void take_slots(KvLedger& ledger, const parallel::PassSequence& of, int64_t first_row);
  void take_virtual_slots(const parallel::PassSequence& of, int64_t first_row);

  const KvLedger* ledger_ = nullptr;
  parallel::TeamPass own_;
  int index_ = 0;
  std::vector<std::vector<int64_t>> positions_ = std::vector<std::vector<int64_t>>(1);  ///< by rank
  std::array<std::vector<int64_t>, 2> slots_;  ///< by Retention
  std::vector<parallel::RowRange> stored_;
  std::vector<parallel::SequenceId> key_sequences_;
  std::map<parallel::SequenceId, std::vector<parallel::TravellingTokens>> placed_;
  std::vector<parallel::StateOrigin> state_origins_;
};

}  // namespace pecia::attention
