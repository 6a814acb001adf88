// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values of a sequence between the ranks' caches and files, for a run that has to stop
/// and goes on later on any number of ranks, cut in any way.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lib/context/attention.hpp"
#include "lib/io/kv_save.hpp"

namespace pecia::context {

/// Which positions of a sequence are written where.
struct KvSaveTarget {
  parallel::SequenceId sequence = 0;
  int64_t begin = 0, end = 0;  ///< positions of its own, not of a parent
  std::filesystem::path folder;
  std::string request_id;
  int64_t stamp = 0;  ///< of the save
};

class KvFiles {
 public:
  /// All references outlive this object.
  KvFiles(const ReplicaGroups& groups, HeadCounts heads, const Attention& attention, KvCache& cache,
          const Compute& compute);

  const KvShape& shape() const { return cache_.shape(); }

  /// Writes the positions that this rank holds into a file of its own; absent where it holds none,
  /// or where another rank that holds the same heads writes them. Between blocks it calls
  /// `go_on`, which throws to give up. SystemError where the disk is full. Not collective.
  std::optional<io::KvPart> save(const KvSaveTarget& target,
                                 const std::function<void()>& go_on) const;

  /// Fills the slots of the rows that the attention's pass gave to this rank: positions [first,
  /// first + count) of one sequence. Whatever ranks wrote the files, it reads what it needs of
  /// them. InputError or SystemError where that is not there whole; then the slots hold anything.
  /// Not collective.
  void restore(const std::filesystem::path& folder, const io::KvSave& save, int64_t first,
               int64_t count) const;

 private:
  parallel::HeadRange heads_of(const parallel::BlockPlace& place) const;
  bool writes_heads() const;

  const ReplicaGroups& groups_;
  HeadCounts heads_;
  const Attention& attention_;
  KvCache& cache_;
  Compute compute_;
};

}  // namespace pecia::context
