// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void row_need(const RowNeedArgs& args) {
  for (const PickedParts& parts : args.always)
    for (int64_t p = 0; p < parts.lse.rows(); ++p)
      for (int64_t h = 0; h < parts.lse.size(1); ++h) {
        float& here = row_of(args.here, parts.rows.as<int32_t>()[p])[parts.first_head + h];
        const double a = here, b = row_of(parts.lse, p)[h], most = std::max(a, b);
        here = static_cast<float>(most + std::log1p(std::exp(std::min(a, b) - most)));
      }
  float* const need = args.need.as<float>();
  for (const auto& [rows, learnt] : args.lists)
    for (int64_t i = 0; i < rows.rows(); ++i) {
      const int32_t row = rows.as<int32_t>()[i];
      if (i >= learnt) {
        need[row] *= args.growth;
        continue;
      }
      double most = 0;
      for (int64_t h = 0; h < args.here.size(1); ++h)
        most = std::max(most, -std::expm1(double{row_of(args.here, row)[h]} -
                                          double{row_of(args.all, row)[h]}));  // never NaN
      need[row] = static_cast<float>(most);
    }
}

}  // namespace pecia::kernels::reference
