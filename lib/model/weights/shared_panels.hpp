// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Panels of a rank's weights (kernels::PanelsArgs), in memory that the ranks of its host share.
/// Ranks that hold the same part of the weights have one copy, and each of them packs a share. A
/// part that one rank of the host holds is in its own memory, in large pages, which most systems
/// have for no other (apps/results/epyc-zen5-2cores.md, "Large pages"):
///
///     ranks 0 and 2 hold part 0, ranks 1 and 3 hold part 1:
///     memory of 0, 2   q k v o …      0 packs the first half of each matrix, 2 the second
///     memory of 1, 3   q k v o …      1 packs the first half, 3 the second
///
/// Experts are read where they are, since most passes touch few of them.

#include <functional>
#include <memory>
#include <optional>

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/files/disk/memory_file.hpp"
#include "lib/files/disk/memory_map.hpp"
#include "lib/model/weights/weights.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::model {

/// Bytes of the panels that the backend has for `weights`; 0 where it has none.
int64_t panel_bytes(const WeightViews& weights, const kernels::Backend& backend);

class SharedPanels {
 public:
  /// Packs, and lets the backend use the panels. `host`: the ranks of this host. `packed_some` is
  /// called after each layer, when the stored matrices of this layer are not needed any more. The
  /// weights and the backend outlive this object. Throws SystemError where there is no such memory.
  /// Collective over `host`.
  SharedPanels(comm::Communicator& host, const WeightViews& weights, kernels::Backend& backend,
               device::Stream& stream, const std::function<void()>& packed_some = {});
  ~SharedPanels();
  SharedPanels(const SharedPanels&) = delete;
  SharedPanels& operator=(const SharedPanels&) = delete;

  int64_t bytes() const { return bytes_; }
  double seconds() const { return seconds_; }  ///< time that the packing took
  bool is_first() const { return is_first_; }  ///< this rank made the memory of its part

 private:
  kernels::Backend& backend_;
  std::vector<TensorView> used_;        ///< matrices whose panels the backend reads
  device::Buffer own_;                  ///< of a rank that holds a part alone; else:
  std::optional<io::MemoryFile> file_;  ///< on the first rank that holds the part
  io::MemoryMap map_;
  int64_t bytes_ = 0;
  bool is_first_ = false;
  double seconds_ = 0;
};

}  // namespace pecia::model
