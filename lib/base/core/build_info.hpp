// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Facts about this binary: version, commit, compiler, options. They are written into every report.

#include <string>

namespace pecia {

struct BuildInfo {
  std::string version;  ///< e.g. "0.2.0"
  std::string commit;   ///< short hash, with "-dirty" after changes; "unknown" outside git
  std::string build_type;
  std::string compiler;
  std::string options;  ///< e.g. "CUDA off, HDF5 serial"
};

const BuildInfo& build_info();

}  // namespace pecia
