// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Results that go on under other settings or with more input: what becomes of their rows, and a
/// new file in place of the old one where the old one's rows do not hold that.

#include <filesystem>
#include <string>
#include <vector>

#include "lib/io/results.hpp"

namespace pecia::batch {

struct Continuation {
  enum class Fate {
    kept,    ///< the row stays as it is
    opened,  ///< the turn runs from its beginning
    ended,   ///< a partial answer that has all the tokens that are now allowed
  };

  io::ResultsLayout layout;          ///< of the file that the start works on
  std::vector<Fate> fates;           ///< by row of the old file
  bool same_file = true;             ///< the old file has that layout
  std::vector<std::string> remarks;  ///< what is other than before, for the log
};

/// What a start that would make a new file as `wanted` (with one entry in `settings`) makes of
/// `old`. Done turns stay, and so do failed ones unless `retry_failed`; open ones run under the
/// settings of `wanted`. A partial one goes on where its prompt is the same, and else starts over.
/// InputError where the results belong to another run.
Continuation continuation(const io::ResultsFile& old, const io::ResultsLayout& wanted,
                          bool retry_failed, const std::filesystem::path& path);

/// Makes the file at `path`, which is `old`, what `next` says. A new file is made beside the old
/// one, synced and renamed, so there is a whole one at any moment. SystemError where there is no
/// room for both; then the old one is as it was.
void carry_over(const io::ResultsFile& old, const Continuation& next,
                const std::filesystem::path& path);

/// Removes what a kill during carry_over left beside the results.
void remove_unfinished_carry_over(const std::filesystem::path& path);

}  // namespace pecia::batch
