// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Moves the keys and values of a sequence between the ranks' caches and files. A run that has to
/// stop can then go on later on any number of ranks, cut in any way.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lib/files/kv/kv_save.hpp"
#include "lib/model/attention/attention.hpp"

namespace pecia::attention {

/// Says which positions of a sequence are written where.
struct KvSaveTarget {
  parallel::SequenceId sequence = 0;
  int64_t begin = 0, end = 0;  ///< positions of its own, not of a parent
  std::filesystem::path folder;
  std::string request_id;
  int64_t stamp = 0;  ///< stamp of the save
};

/// What a stage's files depend on beside its own layers: how many layers of the stages before and after
/// it store keys, and whether layers with a window have files of their own in some stage.
struct OtherStages {
  struct Layers {
    int64_t without_window = 0, with_window = 0;

    int64_t count(io::KvLayers layers) const {
      return (layers == io::KvLayers::with_window ? 0 : without_window) +
             (layers == io::KvLayers::without_window ? 0 : with_window);
    }
  };
  Layers before = {}, after = {};
  bool by_window = false;
};

class KvFiles {
 public:
  /// All references must outlive this object. `windows` has each layer's sliding window, 0 for none.
  /// `others`: beside this rank's stage.
  KvFiles(const ReplicaGroups& groups, HeadCounts heads, std::vector<kernels::Window> windows,
          const Attention& attention, KvCache& cache, const Compute& compute,
          const OtherStages& others = {});

  /// Counts the bytes of a token in these layers on this rank.
  int64_t bytes_per_token(io::KvLayers layers) const;

  /// Writes the positions that this rank holds into a file of its own, and where layers with a window
  /// keep recent tokens alone or have heads of their own, theirs into another one. The result is empty
  /// if it holds none, or if another rank that holds the same heads writes them. Between blocks it
  /// calls `go_on`, which throws to give up. Throws SystemError if the disk is full. The call is not
  /// collective.
  std::vector<io::KvPart> save(const KvSaveTarget& target,
                               const std::function<void()>& go_on) const;

  /// Fills the slots of the rows that the attention's pass gave to this rank. The pass has
  /// positions [first, first + count) of one sequence. Any ranks may have written the files. This
  /// rank reads what it needs of them. Throws InputError or SystemError if that is not completely
  /// there. Then the slots may hold anything. The call is not collective. Of layers that attend what
  /// others store, nothing is in a save.
  ///
  /// Where layers with a window have recent tokens alone in the save, their other rows become
  /// zeros. So a pass in the middle of what is restored could not be computed instead, nor where the
  /// save has states. The first one, which begins at 0, therefore reads all files once and verifies
  /// them.
  void restore(const std::filesystem::path& folder, const io::KvSave& save, int64_t first,
               int64_t count) const;

 private:
  parallel::HeadRange heads_of(int64_t layer) const;
  bool writes_heads(int64_t layer) const;
  bool has_files_by_window() const;
  void check(const io::KvSave& save, const std::filesystem::path& folder) const;
  std::vector<int64_t> layers_of(io::KvLayers layers) const;
  std::optional<io::KvPart> save(io::KvLayers layers, const HeldTokens& held,
                                 const KvSaveTarget& target,
                                 const std::function<void()>& go_on) const;
  void restore(io::KvLayers layers, const std::filesystem::path& folder, const io::KvSave& save,
               int64_t first, int64_t count) const;

  const ReplicaGroups& groups_;
  HeadCounts heads_;
  std::vector<kernels::Window> windows_;
  const Attention& attention_;
  KvCache& cache_;
  Compute compute_;
  OtherStages others_;
};

}  // namespace pecia::attention
