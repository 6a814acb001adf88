// SPDX-License-Identifier: Apache-2.0
#include "lib/batch/journals.hpp"

#include "lib/core/error.hpp"
#include "lib/io/file.hpp"
#include "lib/io/journal_gatherer.hpp"
#include "lib/io/run_lock.hpp"

namespace pecia::batch {
namespace {

namespace fs = std::filesystem;

}  // namespace

fs::path journal_folder(const fs::path& output) {
  return output / "journal";
}

void make_journal_folder(const fs::path& output) {
  std::error_code error;
  fs::create_directories(journal_folder(output), error);
  if (error)
    fail<SystemError>("{} cannot be made: {}", journal_folder(output).string(), error.message());
  io::sync_folder(output);
}

void replay_journals(const fs::path& output, const std::function<void(const std::string&)>& say) {
  const fs::path folder = journal_folder(output), results = output / "results.h5";
  std::error_code unreachable;  // opening the results reports what is wrong with the folder
  if (!fs::exists(folder, unreachable)) return;
  const io::RunLock lock(output);
  if (!fs::exists(results)) {
    say(fmt::format("{} is removed: its results are gone", folder.string()));
    io::remove_journals(folder);
    return;
  }
  io::JournalGatherer gatherer(folder, results);
  for (const io::TornJournal& torn : gatherer.finish())
    say(fmt::format("{}: its last {} bytes are left out: the run was killed while it wrote them",
                    torn.path.string(), torn.bytes));
  if (const int64_t rows = gatherer.rows_written(); rows > 0)
    say(fmt::format("{} turn{} of the earlier start came from its journals", rows,
                    rows == 1 ? "" : "s"));
}

}  // namespace pecia::batch
