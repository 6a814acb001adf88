// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes small text files that a reader sees either complete or not at all.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string_view>

namespace pecia::report {

/// Creates or replaces `path` with what `write` puts into the stream. The text is written to
/// `path`.part, flushed to disk and renamed. Missing folders are made. Throws SystemError naming
/// the file when any of this fails, or the exception that `write` throws. `path` is then unchanged,
/// and no .part file is left. Links that have these names are replaced, too, and not followed. The
/// file gets `mode` less the umask.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(std::ostream&)>& write, mode_t mode = 0666);

void write_atomically(const std::filesystem::path& path, std::string_view text, mode_t mode = 0666);

}  // namespace pecia::report
