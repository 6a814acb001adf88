// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The transports that MPI uses for messages, as far as this process shows them.

#include <string>
#include <string_view>
#include <vector>

namespace pecia::comm {

/// Open MPI's message components among the files that a process has mapped. `maps` is the text of
/// /proc/PID/maps. The result is sorted: "pml ob1", "btl tcp", "btl vader", "mtl ofi", … After
/// MPI_Init, Open MPI has unloaded unused components. The result is empty for other libraries and
/// for components that are linked in.
std::vector<std::string> transports_in(std::string_view maps);

/// The transports of this process.
std::vector<std::string> loaded_transports();

}  // namespace pecia::comm
