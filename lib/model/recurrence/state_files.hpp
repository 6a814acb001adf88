// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Moves states of recurrent layers between ranks and the files of a save, beside the keys
/// (attention/kv_files.hpp). Files have heads in the order of the whole model, so that ranks which
/// are cut in any other way can go on. A state is that after all tokens of its save, and of no other.

#include <filesystem>
#include <functional>
#include <vector>

#include "lib/model/attention/kv_files.hpp"
#include "lib/model/recurrence/state_snapshots.hpp"

namespace pecia::recurrence {

/// What a rank has of the states, and what it writes of them.
struct StatePart {
  io::KvStates whole;  ///< of the model
  parallel::HeadRange heads, key_heads;
  bool writes_key_heads = true;  ///< false: another rank that has the same does
  int rank = 0;                  ///< in the replica
  int64_t first_layer = 0;       ///< of its stage, among the model's recurrent layers
};

class StateFiles {
 public:
  /// References outlive this object.
  StateFiles(const StatePart& part, StateSnapshots& snapshots, const attention::Compute& compute)
      : part_(part), snapshots_(snapshots), compute_(compute) {}

  /// Writes the heads of the sequence's state that are here. Empty if none are. `go_on`, errors: as
  /// of KvFiles::save. The call is not collective.
  std::vector<io::KvPart> save(const attention::KvSaveTarget& target,
                               const std::function<void()>& go_on) const;

  /// Bytes of the numbers in a part that this rank has written.
  int64_t bytes(const io::KvPart& part) const;

  /// To be called for every pass that restores the sequence, after KvFiles::restore and with the same
  /// rows. The first pass reads what this rank could need, and verifies it, since no later pass could
  /// be computed instead. After the last one the rank that has computed the last row has the state.
  /// Throws InputError or SystemError if the files have it not. The call is not collective.
  void restore(const std::filesystem::path& folder, const io::KvSave& save,
               const parallel::PassSequence& rows) const;

 private:
  void check(const std::filesystem::path& folder, const io::KvSave& save) const;
  std::vector<float> read(const std::filesystem::path& folder, const io::KvSave& save) const;

  StatePart part_;
  StateSnapshots& snapshots_;
  const attention::Compute& compute_;
};

}  // namespace pecia::recurrence
