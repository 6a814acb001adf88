// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Files in folders that other users may write to. What they put there is not followed, and not
/// waited for.

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace pecia {

/// Makes a new, empty file and opens it for reading and writing, with `mode` less the umask. What
/// has the name already is removed: a file that a killed run has left, or a link, which is not
/// followed. Returns the descriptor, which is closed on exec, or −1 and errno.
int open_new_file(const std::filesystem::path& path, mode_t mode = 0666);

/// A name of the open file itself, whatever now has the name by which it was opened. Other
/// functions of this process open it by this one, as long as the descriptor is open.
std::filesystem::path path_of_descriptor(int descriptor);

/// The content of a regular file; absent for anything else, and where it cannot be read. Does not
/// wait for the writer of a pipe.
std::optional<std::string> text_of_file(const std::filesystem::path& path);

/// Throws InputError where `folder` is a symbolic link that belongs neither to this user nor to the
/// owner of the folder that it lies in. Somebody else may have set it to have files of this user
/// replaced.
void refuse_foreign_link(const std::filesystem::path& folder);

}  // namespace pecia
