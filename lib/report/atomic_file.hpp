// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Small text files that a reader sees whole or not at all.

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string_view>

namespace pecia::report {

/// Creates or replaces `path` with what `write` puts into the stream: written beside it as
/// `path`.part, flushed to disk, renamed. Missing folders are made. Throws SystemError naming the
/// file when any of this fails, or whatever `write` throws; `path` is then what it was before, and
/// no .part is left.
void write_atomically(const std::filesystem::path& path,
                      const std::function<void(std::ostream&)>& write);

void write_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace pecia::report
