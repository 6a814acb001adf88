// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/latent_tiles.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::attention {
namespace {

using kernels::AttentionItem;
using kernels::KeyRun;

KeyRun part_of_run(const KeyRun& run, int64_t first, int64_t count, int64_t latent_dim) {
  return {run.offset + first * latent_dim, run.head_stride, count, run.position_of(first),
          run.stride};
}

/// How many of the run's keys stand at or before a position.
int64_t keys_up_to(const KeyRun& run, int64_t position) {
  if (position < run.position) return 0;
  return std::min(run.num_keys, (position - run.position) / run.stride + 1);
}

/// The keys of an item that some of its rows see.
std::vector<KeyRun> seen_by(const AttentionItem& item, std::span<const int64_t> positions,
                            std::span<const KeyRun> runs, int64_t latent_dim) {
  const int64_t last = std::ranges::max(positions.subspan(item.first_row, item.num_rows));
  std::vector<KeyRun> seen;
  for (const KeyRun& run : runs.subspan(item.first_run, item.num_runs))
    if (const int64_t keys = keys_up_to(run, last); keys > 0)
      seen.push_back(part_of_run(run, 0, keys, latent_dim));
  return seen;
}

int64_t tokens_of(std::span<const KeyRun> runs) {
  int64_t tokens = 0;
  for (const KeyRun& run : runs) tokens += run.num_keys;
  return tokens;
}

void add(LatentTile& tile, const AttentionItem& item, std::span<const KeyRun> runs) {
  tile.items.push_back({item.first_row, item.num_rows, std::ssize(tile.runs), std::ssize(runs)});
  tile.runs.insert(tile.runs.end(), runs.begin(), runs.end());
  tile.tokens += tokens_of(runs);
}

/// Cuts the runs after every `most` tokens.
std::vector<std::vector<KeyRun>> pieces_of(std::span<const KeyRun> runs, int64_t latent_dim,
                                           int64_t most) {
  std::vector<std::vector<KeyRun>> pieces;
  int64_t room = 0;
  for (const KeyRun& run : runs)
    for (int64_t first = 0; first < run.num_keys;) {
      if (room == 0) pieces.emplace_back(), room = most;
      const int64_t count = std::min(room, run.num_keys - first);
      pieces.back().push_back(part_of_run(run, first, count, latent_dim));
      first += count, room -= count;
    }
  return pieces;
}

}  // namespace

std::vector<LatentTile> latent_tiles(std::span<const int64_t> positions,
                                     std::span<const AttentionItem> items,
                                     std::span<const KeyRun> runs, int64_t latent_dim,
                                     int64_t most_tokens) {
  PECIA_CHECK(most_tokens > 0, "tiles of {} tokens", most_tokens);
  std::vector<LatentTile> tiles;
  LatentTile together;  // items that fit into one tile
  const auto close = [&] {
    if (!together.items.empty()) tiles.push_back(std::move(together));
    together = {};
  };
  for (const AttentionItem& item : items) {
    if (item.num_rows == 0) continue;
    const std::vector<KeyRun> seen = seen_by(item, positions, runs, latent_dim);
    const int64_t tokens = tokens_of(seen);
    if (tokens > most_tokens) {
      bool begins = true;
      for (const auto& piece : pieces_of(seen, latent_dim, most_tokens)) {
        LatentTile& tile = tiles.emplace_back();
        tile.begins = std::exchange(begins, false);
        add(tile, item, piece);
      }
      continue;
    }
    if (together.tokens + tokens > most_tokens) close();
    add(together, item, seen);
  }
  close();
  return tiles;
}

}  // namespace pecia::attention
