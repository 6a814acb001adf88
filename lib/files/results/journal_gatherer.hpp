// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Brings the rows of journals into the results. One process of a run does this, so that the
/// results have one writer however many replicas there are.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lib/files/results/journal.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::io {

/// A journal whose last bytes are no whole row: its writer was killed before they were durable.
struct TornJournal {
  std::filesystem::path path;
  int64_t bytes = 0;
};

class JournalGatherer {
 public:
  static constexpr int64_t usual_batch_bytes = int64_t{16} << 20;

  /// `folder` may be absent. `batch_bytes`: of journals whose rows are written together; a single
  /// row may be larger.
  JournalGatherer(std::filesystem::path folder, const std::filesystem::path& results,
                  int64_t batch_bytes = usual_batch_bytes);

  /// Brings in all rows that are whole, and removes journals that their replica has left behind for
  /// the next number. Rows of turns that the results have as done or failed are passed over, so a
  /// row may be met twice. Returns how many rows were written. Throws InputError for a journal that
  /// cannot be read, and the errors of ResultsFile::write_all, also where there are no rows and the
  /// results have gone from their place; the journals then still have what was not written.
  int64_t gather();

  /// Call it when no replica appends any more. Gathers, then removes the journals and the folder.
  /// What is torn is given back, and its rows are lost: they were never called durable.
  std::vector<TornJournal> finish();

  /// Rows written so far.
  int64_t rows_written() const { return rows_written_; }

 private:
  void add(JournalRow row);
  void flush();

  std::filesystem::path folder_;
  ResultsFile results_;
  std::string head_;
  int64_t batch_bytes_;
  std::map<JournalName, JournalReader> readers_;
  std::map<int64_t, JournalRow> batch_;  ///< by turn
  int64_t rows_written_ = 0;
};

}  // namespace pecia::io
