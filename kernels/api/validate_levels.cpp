// SPDX-License-Identifier: Apache-2.0
/// The arguments of the ops of sparse attention by levels.

#include <algorithm>
#include <limits>

#include "kernels/api/checks.hpp"
#include "kernels/api/validate.hpp"

namespace pecia::kernels {
namespace {

void check_list(std::string_view name, const TensorView& list) {
  check_rank(name, list, 1);
  PECIA_CHECK(list.dtype() == DType::int32, "{} are {}", name, name_of(list.dtype()));
}

/// Entries [first, first + count) of `all`.
void check_entries(std::string_view name, int64_t first, int64_t count, int64_t all) {
  PECIA_CHECK(first >= 0 && count >= 0 && count <= all - first, "{} {} from {}, of {}", count, name,
              first, all);
}

void check_parts(const PickedParts& parts, const TensorView& lse) {
  check_rank("a part's lse", parts.lse, 2);
  check_fp32("a part's lse", parts.lse);
  check_dense("a part's lse", parts.lse);
  check_list("a part's rows", parts.rows);
  check_shape("a part's rows", parts.rows, {parts.lse.rows()});
  check_entries("heads", parts.first_head, parts.lse.size(1), lse.size(1));
}

void check_sums(std::string_view name, const TensorView& sums, int64_t rows, int64_t heads) {
  check_fp32(name, sums);
  check_dense(name, sums);
  check_shape(name, sums, {rows, heads});
}

}  // namespace

bool divides(const KeptOrderArgs& args, const OrderItem& item) {
  return std::ranges::any_of(args.counts_of(item),
                             [&](int64_t count) { return 0 < count && count < item.count; });
}

void validate(const KeptOrderArgs& args) {
  check_list("order", args.order);
  if (args.importance) {
    check_rank("importance", args.importance, 1);
    check_fp32("importance", args.importance);
  }
  const auto all = [](const auto& span) { return static_cast<int64_t>(span.size()); };
  for (const OrderItem& item : args.items) {
    check_entries("entries of the order", item.to, item.count, args.order.rows());
    check_entries("counts", item.first_count, item.num_counts, all(args.counts));
    check_entries("runs", item.first_run, item.num_runs, all(args.runs));
    const auto counts = args.counts_of(item);
    const auto is_number = [&](int64_t number) { return 0 <= number && number <= item.count; };
    PECIA_CHECK(
        is_number(item.first) && is_number(item.last) && std::ranges::all_of(counts, is_number) &&
            std::ranges::is_sorted(counts) && item.num_counts <= KeptOrderArgs::most_counts,
        "{} and {} of {} tokens are always kept, or {} levels keep other numbers than these",
        item.first, item.last, item.count, item.num_counts);
    if (divides(args, item))
      check_entries("numbers", item.first_number, item.count,
                    args.importance ? args.importance.rows() : 0);
    int64_t places = 0;
    for (const PlaceRun& run : args.runs_of(item)) {
      check_entries("places", run.begin, run.count, std::numeric_limits<int32_t>::max());
      places += run.count;
    }
    PECIA_CHECK(places == item.count, "{} places of {} tokens", places, item.count);
  }
}

void validate(const PickRowsArgs& args) {
  for (const auto& [from, rows, to] : args.picks) {
    check_rank("from", from, 2);
    check_shape("to", to, {to.rows(), from.size(1)});
    const bool widens = from.dtype() == DType::bf16 && to.dtype() == DType::fp32;
    const bool rounds = from.dtype() == DType::fp32 && to.dtype() == DType::bf16;
    PECIA_CHECK(from.dtype() == to.dtype() || widens || rounds, "rows of {} become {}",
                name_of(from.dtype()), name_of(to.dtype()));
    if (!rows) {
      check_entries("rows", 0, to.rows(), from.rows());
      continue;
    }
    check_list("rows", rows);
    check_shape("rows", rows, {to.rows()});
  }
}

void validate(const MergePickedArgs& args) {
  check_rank("out", args.out, 3);
  check_fp32("out", args.out);
  check_dense("out", args.out);
  check_sums("lse", args.lse, args.out.rows(), args.out.size(1));
  for (const PickedParts& parts : args.parts) {
    check_rank("a part's out", parts.out, 3);
    check_dense("a part's out", parts.out);
    if (parts.out.dtype() != DType::bf16) check_fp32("a part's out", parts.out);
    PECIA_CHECK(parts.out.dtype() == args.parts.front().out.dtype(), "parts of {} and {}",
                name_of(parts.out.dtype()), name_of(args.parts.front().out.dtype()));
    check_parts(parts, args.lse);
    check_shape("a part's out", parts.out, {parts.lse.rows(), parts.lse.size(1), args.out.size(2)});
  }
}

void validate(const RowNeedArgs& args) {
  check_rank("need", args.need, 1);
  check_fp32("need", args.need);
  check_rank("here", args.here, 2);
  check_sums("here", args.here, args.need.rows(), args.here.size(1));
  check_sums("all", args.all, args.need.rows(), args.here.size(1));
  for (const PickedParts& parts : args.always) check_parts(parts, args.here);
  for (const auto& [rows, learnt] : args.lists) {
    check_list("rows", rows);
    check_entries("learnt rows", 0, learnt, rows.rows());
  }
}

}  // namespace pecia::kernels
