// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Journals: files of a replica's own, to which it appends its results. With many replicas, one
/// file that all of them wrote would make each wait for what the others have written to it.
///
/// FOLDER/REPLICA-NUMBER.rows holds rows of one replica in the order in which they were written. A
/// row that `append` has returned for is as safe as one in the results file: it is brought there
/// later (journal_gatherer.hpp), if need be by the next start. When a journal has reached a size,
/// the replica goes on in the next number, so that what has been brought in can be removed.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/files/disk/file.hpp"
#include "lib/files/results/journal_rows.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::io {

/// Which journal of which replica.
struct JournalName {
  int32_t replica = 0;
  int64_t number = 0;

  auto operator<=>(const JournalName&) const = default;
};

/// "3-0.rows"
std::string file_name(const JournalName& name);

/// The journals in the folder, by replica and number; none where there is no folder.
std::vector<JournalName> journals_in(const std::filesystem::path& folder);

/// Removes the folder's journals and, if it is then empty, the folder. Does nothing where there is
/// none. Throws SystemError naming a file that cannot be removed.
void remove_journals(const std::filesystem::path& folder);

/// Appends the rows of one replica. One process has it, for one start of the run.
class JournalWriter {
 public:
  static constexpr int64_t usual_bytes = int64_t{4} << 20;

  /// `folder` exists and has no journal of the replica. `results` are those to which the rows
  /// belong; they outlive this object and are only read. After `most_bytes` the next journal begins.
  /// Each asks for so much disk space at once: a file in few pieces is removed sooner.
  JournalWriter(std::filesystem::path folder, int32_t replica, const ResultsFile& results,
                int64_t most_bytes = usual_bytes);

  /// Appends rows with the conditions of ResultsFile::write_all; durable on return, by one sync.
  /// Throws SystemError (errno's text, the path, the rows) when this fails; none of the rows then
  /// counts, and the next call takes their place. Throws SystemError, too, where the journal was
  /// moved or removed (displaced.hpp) and the results are in their place.
  void append(std::span<const TurnUpdate> rows);

 private:
  void begin_next();

  std::filesystem::path folder_;
  JournalName name_;
  const ResultsFile& results_;
  int64_t most_bytes_;
  std::string head_;
  std::optional<File> file_;  ///< the journal that rows are appended to
  int64_t end_ = 0;           ///< offset after its last row
};

/// Reads a journal in parts, also while its replica appends to it.
class JournalReader {
 public:
  /// `head`: journal_head() of the results. Throws InputError naming the file unless the journal is
  /// of this schema and of these results. A file that ends within its head has no rows.
  JournalReader(std::filesystem::path path, std::string_view head);

  const std::filesystem::path& path() const { return path_; }

  /// The next whole rows: about `most_bytes` of them, at least one; none where no other is whole.
  /// Opens the file anew, so that network file systems show what other hosts have appended.
  std::vector<JournalRow> read(int64_t most_bytes);

  /// The bytes up to the end of the last row that was read.
  int64_t bytes_read() const { return at_; }
  /// The bytes after the last row that was read, as of the last call of `read`.
  int64_t bytes_left() const { return bytes_left_; }

 private:
  std::filesystem::path path_;
  int64_t at_ = 0;  ///< offset of the next row
  int64_t bytes_left_ = 0;
};

}  // namespace pecia::io
