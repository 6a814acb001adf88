// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far weights that were rounded at load are from the stored ones.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/model/weights/device_weights.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::measure {

/// Relative errors, √(Σ (rounded − stored)² / Σ stored²), over all elements of all ranks.
struct WeightRounding {
  std::array<double, model::num_matrix_kinds> of_matrix{};  ///< 0: not rounded
  double total = 0;
};

/// Combines the sums of all ranks; 0 for matrices with no elements but zeros. Collective over
/// `world`.
WeightRounding gather_rounding(const std::array<model::SquareSums, model::num_matrix_kinds>& mine,
                               comm::Communicator& world);

/// "2.52 %: q 2.51 %, k …" for the matrices that are rounded.
std::string to_text(const WeightRounding& rounding);

/// {"total": 0.0252, "q": 0.0251, …}
nlohmann::ordered_json to_json(const WeightRounding& rounding);

}  // namespace pecia::measure
