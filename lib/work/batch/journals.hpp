// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The journals of a run with several replicas (files/results/journal.hpp), in OUTPUT/journal.

#include <filesystem>
#include <functional>
#include <string>

namespace pecia::batch {

std::filesystem::path journal_folder(const std::filesystem::path& output);

/// Makes the folder for journals, on the disk. Throws SystemError naming it, and InputError where it
/// is a link of another user.
void make_journal_folder(const std::filesystem::path& output);

/// Brings what a killed run has left in journals into its results, so that the next start finds all
/// that is done. Call it on one rank before the results are read. Holds the folder's lock meanwhile,
/// and does nothing where there are no journals. Where the results are gone, the folder of journals
/// is renamed (set_aside.hpp). `say` is told how many rows came, what was torn, and the folder's new
/// name. Throws InputError when another run holds the folder or a journal cannot be read, and
/// SystemError when the results cannot be written; the journals then stay.
void replay_journals(const std::filesystem::path& output,
                     const std::function<void(const std::string&)>& say);

/// The same before a run begins anew, so that the earlier results are whole when they are renamed.
/// Journals that cannot be read are renamed. The caller holds the folder's lock.
void replay_journals_before_fresh(const std::filesystem::path& output,
                                  const std::function<void(const std::string&)>& say);

}  // namespace pecia::batch
