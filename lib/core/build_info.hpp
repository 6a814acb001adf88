// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What this binary is: version, commit, compiler, options. Written into every report.

#include <string>

namespace pecia {

struct BuildInfo {
  std::string version;  ///< e.g. "0.2.0"
  std::string
      commit;  ///< short hash, "-dirty" appended when the tree had changes; "unknown" outside git
  std::string build_type;
  std::string compiler;
  std::string options;  ///< e.g. "CUDA off, HDF5 serial"
};

const BuildInfo& build_info();

}  // namespace pecia
