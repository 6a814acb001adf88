#include "lib/parallel/sharding.hpp"

#include "lib/core/error.hpp"
#include "lib/parallel/heads.hpp"

namespace pecia::parallel {

RowRange row_part(RowRange rows, int count, int index) {
  PECIA_CHECK(count >= 1 && index >= 0 && index < count, "part {} of {}", index, count);
  const auto cut = [&](int64_t part) { return rows.begin + rows.size() * part / count; };
  return {cut(index), cut(index + 1)};
}

ShardedRows sharded_rows(Sharding sharding, const BlockPlace& place, int64_t num_rows) {
  const RowRange all{0, num_rows};
  const RowRange over_sp = row_part(all, place.sp, place.sp_index);
  switch (sharding) {
    case Sharding::base:
      return {over_sp, over_sp};
    case Sharding::sp_tp:
      return {row_part(over_sp, place.tp, place.tp_index), over_sp};
    case Sharding::shift:
      return {all, all};
    case Sharding::gathered:
      break;
  }
  const RowRange own =
      row_part(all, place.sp * place.tp, kv_shard(place.sp, place.sp_index, place.tp_index));
  return {own, own};
}

WeightCut weight_cut(Sharding sharding, const BlockPlace& place) {
  switch (sharding) {
    case Sharding::base:
    case Sharding::sp_tp:
      return {place.tp, place.tp_index};
    case Sharding::shift:
      return {place.sp * place.tp, kv_shard(place.sp, place.sp_index, place.tp_index)};
    case Sharding::gathered:
      break;
  }
  return {};
}

}  // namespace pecia::parallel
