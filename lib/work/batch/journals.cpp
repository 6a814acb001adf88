// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/journals.hpp"

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/disk/run_lock.hpp"
#include "lib/files/results/journal_gatherer.hpp"
#include "lib/work/batch/set_aside.hpp"

namespace pecia::batch {
namespace {

using Say = std::function<void(const std::string&)>;

bool there_are_journals(const std::filesystem::path& output) {
  std::error_code unreachable;  // opening the results reports what is wrong with the folder
  return std::filesystem::exists(journal_folder(output), unreachable);
}

void replay(const std::filesystem::path& output, const Say& say) {
  const auto folder = journal_folder(output), results = output / "results.h5";
  if (!std::filesystem::exists(results)) {
    say(fmt::format("the results of {} are gone; it is now {}", folder.string(),
                    set_aside(folder).string()));
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

}  // namespace

std::filesystem::path journal_folder(const std::filesystem::path& output) {
  return output / "journal";
}

void make_journal_folder(const std::filesystem::path& output) {
  refuse_foreign_link(journal_folder(output));
  std::error_code error;
  std::filesystem::create_directory(journal_folder(output), error);
  if (error)
    fail<SystemError>("{} cannot be made: {}", journal_folder(output).string(), error.message());
  io::sync_folder(output);
}

void replay_journals(const std::filesystem::path& output, const Say& say) {
  if (!there_are_journals(output)) return;
  const io::RunLock lock(output);
  replay(output, say);
}

void replay_journals_before_fresh(const std::filesystem::path& output, const Say& say) {
  if (!there_are_journals(output)) return;
  try {
    replay(output, say);
  } catch (const InputError& unreadable) {
    say(fmt::format("--fresh: {} is now {}: {}", journal_folder(output).string(),
                    set_aside(journal_folder(output)).string(), unreadable.what()));
  }
}

}  // namespace pecia::batch
