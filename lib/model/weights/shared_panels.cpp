// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/shared_panels.hpp"

#include <chrono>
#include <set>
#include <string>

#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::model {
namespace {

/// The matrices of a group, which are packed one after the other.
using Matrices = std::vector<TensorView>;

/// Dense matrices that the backend has panels for, by layer; the head comes last. A matrix that
/// stands in several places comes once.
std::vector<Matrices> matrices_of(const WeightViews& weights, const kernels::Backend& backend) {
  std::vector<Matrices> groups;
  std::set<const void*> seen;
  const auto add = [&](const LinearWeight& matrix) {
    for (const LinearWeight::Part& part : matrix.parts)
      if (backend.panel_bytes(part.weight) > 0 && seen.insert(part.weight.data()).second)
        groups.back().push_back(part.weight);
  };
  for (const LayerWeights& layer : weights.layers) {
    groups.emplace_back();
    layer.for_each_matrix([&](MatrixKind kind, const LinearWeight& matrix) {
      if (role_of(kind).unit != CutUnit::expert_ffn) add(matrix);
    });
  }
  groups.emplace_back();
  add(weights.head);
  return groups;
}

int64_t bytes_of(const std::vector<Matrices>& groups, const kernels::Backend& backend) {
  int64_t bytes = 0;
  for (const Matrices& group : groups)
    for (const TensorView& matrix : group) bytes += backend.panel_bytes(matrix);
  return bytes;
}

}  // namespace

int64_t panel_bytes(const WeightViews& weights, const kernels::Backend& backend) {
  return bytes_of(matrices_of(weights, backend), backend);
}

SharedPanels::SharedPanels(comm::Communicator& host, const WeightViews& weights,
                           kernels::Backend& backend, device::Stream& stream,
                           const std::function<void()>& packed_some)
    : backend_(backend) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ranks = host.split(weights.part.index, host.rank());  // the same part of the matrices
  const std::vector<Matrices> groups = matrices_of(weights, backend);
  const bool alone = ranks->size() == 1;
  bytes_ = bytes_of(groups, backend);
  is_first_ = ranks->rank() == 0;
  comm::together(host, [&] {
    if (alone)
      own_ = device::Buffer(bytes_);
    else if (is_first_)
      file_.emplace(bytes_);
  });
  const std::filesystem::path path = comm::of_first(*ranks, file_ ? file_->path().string() : "");
  comm::together(host, [&] {
    if (!alone) map_ = io::MemoryMap(path, bytes_);
    std::byte* panels = alone ? own_.as<std::byte>() : map_.bytes().data();
    for (const Matrices& group : groups) {
      for (const TensorView& matrix : group) {
        constexpr int64_t unit = kernels::PanelsArgs::panel_rows;
        const int64_t num_panels = (matrix.rows() + unit - 1) / unit;
        const parallel::RowRange mine =
            parallel::row_part({0, num_panels}, ranks->size(), ranks->rank());
        backend.make_panels(
            {matrix, panels, mine.begin * unit, std::min(matrix.rows(), mine.end * unit)}, stream);
        backend.use_panels(matrix, panels);
        used_.push_back(matrix);
        panels += backend.panel_bytes(matrix);
      }
      if (packed_some) packed_some();
    }
  });
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  seconds_ = elapsed.count();
}

SharedPanels::~SharedPanels() {
  for (const TensorView& matrix : used_) backend_.use_panels(matrix, nullptr);
}

}  // namespace pecia::model
