// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/heads.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

bool can_shard_heads(int64_t num_heads, int64_t num_kv_heads, int count) {
  return count >= 1 && num_heads % count == 0 &&
         (num_kv_heads % count == 0 || count % num_kv_heads == 0);
}

HeadShard head_shard(int64_t num_heads, int64_t num_kv_heads, int count, int index) {
  PECIA_CHECK(can_shard_heads(num_heads, num_kv_heads, count) && index >= 0 && index < count,
              "shard {} of {} of {} heads over {} KV heads", index, count, num_heads, num_kv_heads);
  const int64_t width = num_heads / count, group = num_heads / num_kv_heads;
  const HeadRange q{index * width, (index + 1) * width};
  return {q, {q.begin / group, (q.end + group - 1) / group}};
}

}  // namespace pecia::parallel
