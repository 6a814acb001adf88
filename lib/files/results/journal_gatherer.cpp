// SPDX-License-Identifier: Apache-2.0
#include "lib/files/results/journal_gatherer.hpp"

#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

bool settled(TurnState state) {
  return state == TurnState::done || state == TurnState::failed;
}

}  // namespace

JournalGatherer::JournalGatherer(fs::path folder, const fs::path& results, int64_t batch_bytes)
    : folder_(std::move(folder)),
      results_(results),
      head_(journal_head(results_.layout())),
      batch_bytes_(batch_bytes) {}

int64_t JournalGatherer::gather() {
  const int64_t before = rows_written_;
  results_.require_in_place();
  int64_t batch = 0;
  // A journal with a successor is complete. The list is made first, so all of it is then read.
  const std::vector<JournalName> names = journals_in(folder_);
  for (const JournalName& name : names) {
    JournalReader& reader =
        readers_.try_emplace(name, folder_ / file_name(name), head_).first->second;
    for (;;) {
      const int64_t begin = reader.bytes_read();
      std::vector<JournalRow> rows = reader.read(batch_bytes_ - batch);
      if (rows.empty()) break;
      for (JournalRow& row : rows) add(std::move(row));
      batch += reader.bytes_read() - begin;
      if (batch < batch_bytes_) continue;
      flush();
      batch = 0;
    }
  }
  flush();
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    const JournalReader& reader = readers_.at(names[i]);
    if (names[i].replica != names[i + 1].replica || reader.bytes_left() > 0) continue;
    std::error_code error;
    if (!fs::remove(reader.path(), error) && error)
      fail<SystemError>("{} cannot be removed: {}", reader.path().string(), error.message());
    readers_.erase(names[i]);
  }
  return rows_written_ - before;
}

void JournalGatherer::add(JournalRow row) {
  const int64_t turn = row.turn;
  if (turn < 0 || turn >= results_.num_turns())
    fail<InputError>("{}: a row is of turn {}, the results have {}: the journals are damaged",
                     folder_.string(), turn, results_.num_turns());
  if (settled(results_.state(turn))) return;
  if (batch_.contains(turn)) flush();
  batch_.emplace(turn, std::move(row));
}

void JournalGatherer::flush() {
  std::vector<TurnUpdate> updates;
  for (const auto& [turn, row] : batch_) updates.push_back({turn, row.result, row.state});
  results_.write_all(updates);
  rows_written_ += std::ssize(updates);
  batch_.clear();
}

std::vector<TornJournal> JournalGatherer::finish() {
  gather();
  std::vector<TornJournal> torn;
  for (const auto& [name, reader] : readers_)
    if (reader.bytes_left() > 0) torn.push_back({reader.path(), reader.bytes_left()});
  readers_.clear();
  remove_journals(folder_);
  return torn;
}

}  // namespace pecia::io
