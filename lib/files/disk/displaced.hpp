// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a run says when somebody moves or removes a file that it is writing. Writing goes on without
/// an error then, and nobody would find what was written.

#include "lib/files/disk/file.hpp"

namespace pecia::io {

/// Returns if the file's path still names it. Otherwise throws SystemError that says where the file
/// is now. A file that was removed is first copied to the folder that held its folder, as
/// FOLDER.rescued.NAME: it is readable as long as it is open. What cannot be copied is called lost.
void require_in_place(const File& file);

}  // namespace pecia::io
