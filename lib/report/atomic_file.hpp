// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Writes small text files that a reader sees either complete or not at all.

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string_view>

namespace pecia::report {

/// Creates or replaces `path` with what `write` puts into the stream. The text is written to
/// `path`.part, flushed to disk and renamed. Missing folders are made. Throws SystemError naming
/// the file when any of this fails, or the exception that `write` throws. `path` is then unchanged,
/// and no .part file is left.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(std::ostream&)>& write);

void write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace pecia::report
