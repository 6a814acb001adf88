// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What MPI sends messages with, as far as this process shows.

#include <string>
#include <string_view>
#include <vector>

namespace pecia::comm {

/// Open MPI's components for messages among the files that a process has mapped (the text of
/// /proc/PID/maps): "pml ob1", "btl tcp", "btl vader", "mtl ofi", …, sorted. After MPI_Init it has
/// unloaded those it does not use. Empty for other libraries and for components linked in.
std::vector<std::string> transports_in(std::string_view maps);

/// Of this process.
std::vector<std::string> loaded_transports();

}  // namespace pecia::comm
