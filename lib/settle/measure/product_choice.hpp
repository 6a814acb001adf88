// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which products a run takes on CPUs, by measuring: what is fastest depends on the CPU. Without
/// AMX, an Intel CPU multiplies many rows faster in fp32 than by vdpbf16ps, and few rows the other
/// way round.

#include <string>

#include "lib/settle/measure/product_times.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::measure {

/// The products of all candidates whose worst time, over all measured numbers of rows, is nearest to
/// the best one of that number. `fixed` for all rows stays unless that gains more than 5 %, so
/// that noise changes no bits. All few rows have one kind, so where kinds cross below 16 rows, the
/// smaller loss is taken. Of codes only the kinds of products are compared, as kernels know
/// themselves when to pack them.
kernels::CpuProducts best_products(const std::vector<ProductTime>& times, kernels::MatmulKind fixed,
                                   DType weights);

struct ProductChoice {
  kernels::CpuProducts products = kernels::MatmulKind::fp32;
  std::string why;                 ///< how it came about
  std::vector<ProductTime> times;  ///< what was measured, now or before; empty: nothing
  bool is_new = false;             ///< measured now
  std::string warning;             ///< what the user must know; "": nothing
};

/// Chooses the products of a job whose weights are held in this type. They are, in this order: what
/// the job's model.compute says; those with which the run began (`kept`, as products_text writes
/// them), if every rank has them; with reproducible: layout, with weights that are multiplied in
/// fp32, and where nothing is kept between runs, the fixed order of resources::fixed_products; and
/// otherwise the fastest, which are measured once and kept. Collective over `world`; every rank gets
/// the same.
ProductChoice choose_products(const job::Job& job, DType weights, const resources::Threads& threads,
                              comm::Communicator& world, const std::string& kept = {});

/// "bf16", or "bf16 in place up to 90 rows, then fp32"; parse_products reads it again, or returns nothing.
std::string products_text(const kernels::CpuProducts& products);
std::optional<kernels::CpuProducts> parse_products(const std::string& text);

/// What was measured, for people: "1 row: bf16 1.21, fp32 1.24 ms; …", each kind at its best.
std::string times_text(const std::vector<ProductTime>& times);

}  // namespace pecia::measure
