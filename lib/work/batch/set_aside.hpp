// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What an earlier run left is renamed when a run begins anew, and never removed.

#include <filesystem>

namespace pecia::batch {

/// Renames a file or folder to the first free one of NAME.1, NAME.2, … (before the suffix, as in
/// results.1.h5), and returns that path. The caller holds the folder's lock. Throws SystemError
/// naming both where it cannot be renamed.
std::filesystem::path set_aside(const std::filesystem::path& path);

}  // namespace pecia::batch
