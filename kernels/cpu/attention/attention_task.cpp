// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/attention_task.hpp"

#include <cstring>

namespace pecia::kernels::cpu {

int64_t KeyStage::scratch_bytes(const AttentionArgs& args) {
  return 2 * Carver::bytes_of<char>(block_keys * args.q.size(2) * size_of(args.kv_dtype)) +
         2 * Carver::bytes_of<float>(block_keys) + Carver::bytes_of<int64_t>(block_keys);
}

KeyStage::KeyStage(const AttentionArgs& args, int64_t kv_head, Carver& scratch)
    : args_(args),
      kv_head_(kv_head),
      head_dim_(args.q.size(2)),
      row_bytes_(head_dim_ * size_of(args.kv_dtype)),
      k_(scratch.take<char>(block_keys * row_bytes_)),
      k_scales_(scratch.take<float>(block_keys)),
      v_(args.keys.values_in_keys() ? k_ : scratch.take<char>(block_keys * row_bytes_)),
      v_scales_(args.keys.values_in_keys() ? k_scales_ : scratch.take<float>(block_keys)),
      positions_(scratch.take<int64_t>(block_keys)) {}

StagedKeys KeyStage::stage(const KeyBlock& block) {
  const auto at = [&](const void* base, int64_t element) {
    return static_cast<const char*>(base) + element * size_of(args_.kv_dtype);
  };
  const StoredKeys& all = args_.keys;
  const bool scaled = args_.kv_dtype == DType::fp8;
  if (block.in_place) {
    const int64_t first = element_of(args_.runs[block.run], block.offset);
    return {at(all.k, first), at(all.v, first), scaled ? all.k_scales + first / head_dim_ : nullptr,
            scaled ? all.v_scales + first / head_dim_ : nullptr};
  }
  int64_t done = 0;
  for_each_piece(args_, block, [&](const KeyRun& run, int64_t offset, int64_t count) {
    const int64_t first = element_of(run, offset);
    std::memcpy(k_ + done * row_bytes_, at(all.k, first), count * row_bytes_);
    if (v_ != k_) std::memcpy(v_ + done * row_bytes_, at(all.v, first), count * row_bytes_);
    if (scaled) std::copy_n(all.k_scales + first / head_dim_, count, k_scales_ + done);
    if (scaled && v_ != k_) std::copy_n(all.v_scales + first / head_dim_, count, v_scales_ + done);
    done += count;
  });
  return {k_, v_, scaled ? k_scales_ : nullptr, scaled ? v_scales_ : nullptr};
}

const int64_t* KeyStage::find_positions(const KeyBlock& block) {
  int64_t* to = positions_;
  for_each_piece(args_, block, [&](const KeyRun& run, int64_t offset, int64_t count) {
    for (int64_t s = offset; s < offset + count; ++s) *to++ = run.position_of(s);
  });
  return positions_;
}

int64_t KeyStage::bytes_between(const KeyBlock& block, const std::optional<KeyBlock>& next) const {
  if (!next || !block.in_place) return block_keys * row_bytes_;
  return (element_of(args_.runs[next->run], next->offset) -
          element_of(args_.runs[block.run], block.offset)) *
         size_of(args_.kv_dtype);
}

int64_t keys_up_to_last_seen(const int64_t* positions, int64_t num_keys, int64_t last) {
  constexpr int64_t unit = 32;
  int64_t count = num_keys;
  while (count > 0 && positions[count - 1] > last) --count;
  return std::min(num_keys, (count + unit - 1) / unit * unit);
}

}  // namespace pecia::kernels::cpu
