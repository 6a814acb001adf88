// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Continues results under other settings or with more input. It decides what becomes of each row,
/// and makes a new file in place of the old one where the old layout does not fit.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lib/files/results/results.hpp"

namespace pecia::batch {

struct Continuation {
  enum class Fate {
    kept,    ///< the row stays as it is
    opened,  ///< the turn runs from its beginning
    ended,   ///< the turn's partial answer already has all the tokens now allowed
  };

  io::ResultsLayout layout;           ///< layout of the file that the start works on
  std::vector<Fate> fates;            ///< by row of the old file
  bool same_file = true;              ///< the old file has that layout
  std::vector<std::string> remarks;   ///< differences from before, for the log
  std::vector<std::string> warnings;  ///< of what cannot be known
};

/// Whether the turn in a row depends on a key of the settings (Inputs::depends_on).
using DependsOn = std::function<bool(const std::string& key, int64_t row)>;

/// Decides what becomes of `old` at a start that would make a new file as `wanted` (with one entry
/// in `settings`). Done turns stay, and so do failed ones unless `retry_failed` is given; open ones
/// run under the settings of `wanted`. A partial answer goes on if its prompt is the same, and
/// starts over otherwise. `depends_on` is asked for the remarks; null: all turns depend on all keys.
/// Throws InputError where the results belong to another run, or where an answer is damaged that the
/// start goes on from.
Continuation continuation(const io::ResultsFile& old, const io::ResultsLayout& wanted,
                          bool retry_failed, const std::filesystem::path& path,
                          const DependsOn& depends_on = {});

/// Changes the file at `path`, which is `old`, as `next` says. A new file is made beside the old
/// one, synced and renamed, so that a complete file exists at any moment. Throws SystemError where
/// there is no room for both; the old file is then unchanged.
void carry_over(const io::ResultsFile& old, const Continuation& next,
                const std::filesystem::path& path);

/// Removes what a carry_over that was killed has left beside the results.
void remove_unfinished_carry_over(const std::filesystem::path& path);

}  // namespace pecia::batch
