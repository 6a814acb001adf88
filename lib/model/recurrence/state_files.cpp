// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/state_files.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::recurrence {
namespace {

using io::KvLayers;
using parallel::HeadRange;

/// Rows next to each other in a snapshot, `stride` numbers from one to the next.
struct SnapshotRows {
  int64_t first = 0, count = 0, stride = 0;
};

/// Where a snapshot of StateShape has the rows of a head that a file has (io::KvStates).
class SnapshotPlaces {
 public:
  SnapshotPlaces(const StateShape& shape, int64_t key_heads) : shape_(shape), keys_(key_heads) {}

  /// `head`: among those of the rank.
  std::vector<SnapshotRows> rows(KvLayers which, int64_t layer, int64_t head) const {
    const int64_t keys = keys_ * shape_.key_dim, dim = shape_.value_dim;
    if (which == KvLayers::states)
      return {{of_layer(layer) + head * shape_.key_dim * dim, shape_.key_dim, dim},
              tail(layer, 2 * keys + head * dim)};
    const int64_t key = head * shape_.key_dim;
    return {tail(layer, key), tail(layer, keys + key)};
  }
  int64_t width(KvLayers which) const {
    return which == KvLayers::states ? shape_.value_dim : shape_.key_dim;
  }
  int64_t elements() const { return of_layer(shape_.layers); }

 private:
  int64_t of_layer(int64_t layer) const {
    return layer * (shape_.matrix_elements() + shape_.tail_elements());
  }
  SnapshotRows tail(int64_t layer, int64_t channel) const {
    return {of_layer(layer) + shape_.matrix_elements() + channel, shape_.tail_rows,
            shape_.channels};
  }

  StateShape shape_;
  int64_t keys_;  ///< heads
};

/// Calls `body(first number in the snapshot, index of the row in the file's head)` for each row.
template <typename Body>
void each_row(const std::vector<SnapshotRows>& runs, const Body& body) {
  int64_t row = 0;
  for (const SnapshotRows& run : runs)
    for (int64_t i = 0; i < run.count; ++i) body(run.first + i * run.stride, row++);
}

/// Calls `body` with each block of rows of the heads [begin, end) in all layers.
template <typename Body>
void each_block(const io::KvFileShape& shape, HeadRange heads, const Body& body) {
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    for (int64_t head = heads.begin; head < heads.end; ++head)
      for (int64_t block = 0; block < shape.blocks(); ++block)
        body(io::KvBlock{io::KvSide::keys, layer, head, block});
}

}  // namespace

std::vector<io::KvPart> StateFiles::save(const attention::KvSaveTarget& target,
                                         const std::function<void()>& go_on) const {
  const int64_t bytes = snapshots_.bytes(target.sequence);
  if (bytes == 0) return {};
  std::vector<float> state(bytes / size_of(DType::fp32));
  snapshots_.copy_out(target.sequence, std::as_writable_bytes(std::span(state)));
  const SnapshotPlaces places(snapshots_.shape(), part_.key_heads.size());
  io::KvSave described;
  described.states = part_.whole;
  std::vector<io::KvPart> parts;
  const auto write = [&](KvLayers which, HeadRange heads) {
    const char* const of = which == KvLayers::states ? "states" : "state-tails";
    io::KvPart part{fmt::format("{}-{}-{}.h5", target.end, part_.rank, of),
                    target.stamp,
                    heads.begin,
                    heads.end,
                    {{target.end - 1, 1, 1}},
                    which};
    if (const int64_t layers = snapshots_.shape().layers; layers < part_.whole.layers)
      part.layer_begin = part_.first_layer, part.layer_end = part_.first_layer + layers;
    const io::KvFileShape shape = described.shape_of(part);
    if (shape.tokens == 0) return;
    io::KvFileWriter writer(target.folder / part.file, shape, target.stamp, target.request_id,
                            part.positions);
    const int64_t width = places.width(which);
    std::vector<float> rows(shape.tokens * width);
    each_block(shape, {0, heads.size()}, [&](const io::KvBlock& at) {
      go_on();
      if (at.block == 0)
        each_row(places.rows(which, at.layer, at.head), [&](int64_t from, int64_t row) {
          std::copy_n(state.begin() + from, width, rows.begin() + row * width);
        });
      const auto block = std::span(rows).subspan(at.block * io::kv_block_tokens * width,
                                                 shape.tokens_of_block(at.block) * width);
      writer.write(at, std::as_bytes(block), {});
    });
    writer.finish();
    parts.push_back(std::move(part));
  };
  write(KvLayers::states, part_.heads);
  if (part_.writes_key_heads) write(KvLayers::state_tails, part_.key_heads);
  return parts;
}

int64_t StateFiles::bytes(const io::KvPart& part) const {
  io::KvSave described;
  described.states = part_.whole;
  const io::KvFileShape shape = described.shape_of(part);
  return shape.layers * shape.heads * shape.tokens * shape.vector_bytes();
}

void StateFiles::restore(const std::filesystem::path& folder, const io::KvSave& save,
                         const parallel::PassSequence& rows) const {
  const bool ends = rows.first + rows.count == save.tokens;
  const bool stays = ends && goes_on_here(snapshots_.ledger(), rows.sequence);
  if (rows.first > 0 && !stays) return;
  check(folder, save);
  const std::vector<float> state = read(folder, save);
  if (stays) snapshots_.copy_in(rows.sequence, std::as_bytes(std::span(state)));
}

void StateFiles::check(const std::filesystem::path& folder, const io::KvSave& save) const {
  if (save.states != part_.whole)
    fail<InputError>("{} holds states of another model", folder.string());
  for (const io::KvPart& part : save.parts) {
    if (!are_states(part.layers)) continue;
    if (!save.has_place_for(part))
      fail<InputError>("{}: the description of {} is wrong", folder.string(), part.file);
    if (part.positions != std::vector<io::KvPositions>{{save.tokens - 1, 1, 1}})
      fail<InputError>("{} is the state after other tokens than the first {}",
                       (folder / part.file).string(), save.tokens);
  }
}

/// Reads this rank's part of the state, as a snapshot.
std::vector<float> StateFiles::read(const std::filesystem::path& folder,
                                    const io::KvSave& save) const {
  const SnapshotPlaces places(snapshots_.shape(), part_.key_heads.size());
  std::vector<float> state(places.elements());
  for (const auto& [which, own] : {std::pair(KvLayers::states, part_.heads),
                                   std::pair(KvLayers::state_tails, part_.key_heads)}) {
    const int64_t layers = snapshots_.shape().layers;
    std::vector<bool> found(own.size() * layers);  // by head, layer
    const int64_t width = places.width(which);
    for (const io::KvPart& part : save.parts) {
      const HeadRange heads{std::max(part.head_begin, own.begin), std::min(part.head_end, own.end)};
      if (part.layers != which || heads.size() <= 0) continue;
      const io::KvFileShape shape = save.shape_of(part);
      const int64_t first = save.range_of(part).begin - part_.first_layer;  // of the rank's layers
      if (first >= layers || first + shape.layers <= 0) continue;
      const io::KvFileReader reader(folder / part.file, shape, part.stamp);
      std::vector<float> rows(shape.tokens * width);
      const HeadRange of_file{heads.begin - part.head_begin, heads.end - part.head_begin};
      each_block(shape, of_file, [&](const io::KvBlock& at) {
        const auto block = std::span(rows).subspan(at.block * io::kv_block_tokens * width,
                                                   shape.tokens_of_block(at.block) * width);
        reader.read(at, std::as_writable_bytes(block), {});
        compute_.stream.poll();
        if (at.block + 1 < shape.blocks()) return;
        const int64_t head = at.head + part.head_begin - own.begin, layer = first + at.layer;
        if (layer < 0 || layer >= layers) return;
        each_row(places.rows(which, layer, head), [&](int64_t to, int64_t row) {
          std::copy_n(rows.begin() + row * width, width, state.begin() + to);
        });
        found[head * layers + layer] = true;
      });
    }
    const bool is_empty = which == KvLayers::state_tails && save.states.tail_rows == 0;
    const auto lacks = std::ranges::find(found, false);
    if (lacks != found.end() && !is_empty)
      fail<InputError>("{} has no {} of head {}", folder.string(),
                       which == KvLayers::states ? "states" : "tails of states",
                       own.begin + (lacks - found.begin()) / layers);
  }
  return state;
}

}  // namespace pecia::recurrence
