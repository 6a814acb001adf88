// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_files.hpp"

#include <algorithm>

#include "lib/model/attention/host_tokens.hpp"

namespace pecia::attention {
namespace {

using io::KvBlock;
using io::KvLayers;
using io::KvSide;
using parallel::SlotRange;
using parallel::StridedRange;

int64_t sides_of(const KvShape& cache) {
  return cache.stores_values() ? 2 : 1;
}

KvCache::Stored stored(const KvCache& cache, KvSide side, int64_t layer) {
  return side == KvSide::keys ? cache.k(layer) : cache.v(layer);
}

/// The positions of `held` in [begin, end), and the slots that they are in.
struct Chosen {
  std::vector<io::KvPositions> positions;
  std::vector<SlotRange> slots;
  int64_t tokens = 0;
};

/// Adds slots after the last ones.
void append(std::vector<SlotRange>& slots, SlotRange added) {
  if (!slots.empty() && slots.back().end == added.begin)
    slots.back().end = added.end;
  else
    slots.push_back(added);
}

Chosen choose(const HeldTokens& held, int64_t begin, int64_t end) {
  Chosen chosen;
  for (const StridedRange& range : held.positions)
    if (const parallel::IndexRun run = indices_between(range, begin, end); run.count > 0)
      chosen.positions.push_back({range.position(run.begin), run.count, range.stride});
  for (const auto& [slot, range] : parallel::stretches(held.positions, held.slots)) {
    const parallel::IndexRun run = indices_between(range, begin, end);
    if (run.count == 0) continue;
    append(chosen.slots, {slot + run.begin, slot + run.begin + run.count});
    chosen.tokens += run.count;
  }
  return chosen;
}

/// A token of a file that a row of the pass wants.
struct Match {
  int64_t token = 0, row = 0;
};

/// What the pass wants of one file.
struct Wanted {
  const io::KvPart& part;
  io::KvFileReader reader;
  std::vector<Match> matches;  ///< by block of the file
};

std::vector<Match> matches_of(const io::KvPart& part, int64_t first,
                              const std::vector<int64_t>& row_of) {
  std::vector<Match> matches;
  const auto count = static_cast<int64_t>(row_of.size());
  int64_t before = 0;
  for (const io::KvPositions& positions : part.positions) {
    const StridedRange range{positions.begin, positions.count, positions.stride};
    const parallel::IndexRun run = indices_between(range, first, first + count);
    for (int64_t i = run.begin; i < run.begin + run.count; ++i)
      if (const int64_t row = row_of[range.position(i) - first]; row >= 0)
        matches.push_back({before + i, row});
    before += positions.count;
  }
  std::sort(matches.begin(), matches.end(),
            [](const Match& a, const Match& b) { return a.token < b.token; });
  return matches;
}

int64_t place_of(const std::vector<int64_t>& layers, int64_t layer) {
  return std::ranges::find(layers, layer) - layers.begin();
}

/// Reads all blocks of these heads in these layers. Throws InputError where a file is damaged.
void verify(const std::filesystem::path& folder, const io::KvSave& save, KvLayers layers,
            parallel::HeadRange heads, const HostTokens& block, const Compute& compute) {
  for (const io::KvPart& part : save.parts) {
    if (part.layers != layers && part.layers != KvLayers::all) continue;
    if (part.head_end <= heads.begin || part.head_begin >= heads.end) continue;
    const io::KvFileShape shape = save.shape_of(part);
    const io::KvFileReader reader(folder / part.file, shape, part.stamp);
    for (const KvSide side : shape.sides_stored())
      for (int64_t layer = 0; layer < shape.layers; ++layer)
        for (int64_t head = std::max(part.head_begin, heads.begin);
             head < std::min(part.head_end, heads.end); ++head)
          for (int64_t at = 0; at < shape.blocks(); ++at) {
            const int64_t tokens = shape.tokens_of_block(at);
            reader.read({side, layer, head - part.head_begin, at}, block.vector_span(tokens),
                        block.scale_span(tokens));
            compute.stream.poll();
          }
  }
}

}  // namespace

KvFiles::KvFiles(const ReplicaGroups& groups, HeadCounts heads,
                 std::vector<kernels::Window> windows, const Attention& attention, KvCache& cache,
                 const Compute& compute, const OtherStages& others)
    : groups_(groups),
      heads_(heads),
      windows_(std::move(windows)),
      attention_(attention),
      cache_(cache),
      compute_(compute),
      others_(others) {}

std::vector<int64_t> KvFiles::layers_of(KvLayers layers) const {
  std::vector<int64_t> found;
  for (int64_t layer = 0; layer < std::ssize(windows_); ++layer)
    if (cache_.is_stored(layer) &&
        (layers == KvLayers::all || (windows_[layer] > 0) == (layers == KvLayers::with_window)))
      found.push_back(layer);
  return found;
}

int64_t KvFiles::bytes_per_token(KvLayers layers) const {
  int64_t bytes = 0;
  for (const int64_t layer : layers_of(layers))
    bytes += cache_.shape(layer).layer_bytes_per_token();
  return bytes;
}

parallel::HeadRange KvFiles::heads_of(int64_t layer) const {
  return Attention::held_heads(groups_.place, heads_.num_heads, heads_.kv_heads(layer)).kv;
}

/// Whether layers with a window and the others have files of their own.
bool KvFiles::has_files_by_window() const {
  return others_.by_window || cache_.recent().any() || cache_.kinds().size() > 1;
}

void KvFiles::check(const io::KvSave& save, const std::filesystem::path& folder) const {
  const auto count = [&](KvLayers layers) {
    return others_.before.count(layers) + std::ssize(layers_of(layers)) +
           others_.after.count(layers);
  };
  const bool by_window = save.window_layers != 0;
  bool same = save.layers == count(KvLayers::all) && save.dtype == cache_.shape().dtype &&
              save.sides == sides_of(cache_.shape()) &&
              (!by_window || save.window_layers == count(KvLayers::with_window));
  for (const int64_t layer : layers_of(KvLayers::all)) {
    const io::KvHeads heads = save.heads_of(
        windows_[layer] > 0 && by_window ? KvLayers::with_window : KvLayers::without_window);
    same = same && heads == io::KvHeads{heads_.kv_heads(layer), cache_.shape(layer).head_dim};
  }
  if (!same) fail<InputError>("{} holds keys and values of another model or type", folder.string());
  for (const io::KvPart& part : save.parts) {
    if (are_states(part.layers)) continue;
    bool sound = save.has_place_for(part);
    for (const io::KvPositions& range : part.positions)
      sound = sound && range.begin >= 0 && range.count > 0 && range.stride > 0 &&
              range.count <= save.tokens && range.stride <= save.tokens &&
              range.begin + (range.count - 1) * range.stride < save.tokens;
    if (!sound) fail<InputError>("{}: the description of {} is wrong", folder.string(), part.file);
  }
}

/// Where there are more shards than KV heads, the first of those that hold the same.
bool KvFiles::writes_heads(int64_t layer) const {
  const parallel::BlockPlace& place = groups_.place;
  const int shards = place.sp * place.tp;
  const int mine = parallel::kv_shard(place.sp, place.sp_index, place.tp_index);
  const auto heads = [&](int shard) {
    return parallel::head_shard(heads_.num_heads, heads_.kv_heads(layer), shards, shard).kv;
  };
  for (int shard = 0; shard < mine; ++shard)
    if (heads(shard) == heads(mine)) return false;
  return true;
}

std::vector<io::KvPart> KvFiles::save(const KvSaveTarget& target,
                                      const std::function<void()>& go_on) const {
  std::vector<io::KvPart> parts;
  const KvLedger& ledger = attention_.ledger();
  const auto write = [&](KvLayers layers, const HeldTokens& held) {
    const std::vector<int64_t> written = layers_of(layers);
    if (written.empty() || !writes_heads(written.front())) return;
    if (auto part = save(layers, held, target, go_on)) parts.push_back(std::move(*part));
  };
  if (!has_files_by_window()) {
    write(KvLayers::all, ledger.held(target.sequence));
  } else {
    write(KvLayers::without_window, ledger.held(target.sequence));
    write(KvLayers::with_window, ledger.recent() == nullptr
                                     ? ledger.held(target.sequence)
                                     : ledger.held_recently(target.sequence));
  }
  return parts;
}

std::optional<io::KvPart> KvFiles::save(KvLayers layers, const HeldTokens& held,
                                        const KvSaveTarget& target,
                                        const std::function<void()>& go_on) const {
  const int64_t begin = layers == KvLayers::with_window && cache_.recent().any()
                            ? std::max(target.begin, cache_.recent().first_kept(target.end))
                            : target.begin;
  Chosen chosen = choose(held, begin, target.end);
  if (chosen.slots.empty()) return {};
  const parallel::BlockPlace& place = groups_.place;
  const int instance = groups_.stage * groups_.cp + groups_.cp_index;
  const int rank = (instance * place.sp + place.sp_index) * place.tp + place.tp_index;
  const std::vector<int64_t> cached = layers_of(layers);
  const parallel::HeadRange heads = heads_of(cached.front());
  const char* const of = layers == KvLayers::with_window ? "-recent" : "";
  io::KvPart part{fmt::format("{}-{}{}.h5", target.begin, rank, of),
                  target.stamp,
                  heads.begin,
                  heads.end,
                  std::move(chosen.positions),
                  layers};
  if (groups_.stages > 1)
    part.layer_begin = others_.before.count(layers),
    part.layer_end = part.layer_begin + std::ssize(cached);

  const KvShape& cache = cache_.shape(cached.front());
  const int64_t tokens = chosen.tokens;
  const io::KvFileShape shape{std::ssize(cached), heads.size(), tokens,
                              cache.head_dim,     cache.dtype,  sides_of(cache)};
  io::KvFileWriter writer(target.folder / part.file, shape, target.stamp, target.request_id,
                          part.positions);
  const HostTokens host(compute_, cache, std::min(tokens, io::kv_block_tokens));
  for (const KvSide side : shape.sides_stored())
    for (int64_t layer = 0; layer < shape.layers; ++layer)
      for (int64_t head = 0; head < heads.size(); ++head)
        for (int64_t block = 0; block < shape.blocks(); ++block) {
          go_on();
          const int64_t count = shape.tokens_of_block(block);
          const auto slots = part_of(chosen.slots, block * io::kv_block_tokens, count);
          copy_tokens(CopyDirection::from_cache, stored(cache_, side, cached[layer]), head, host,
                      slots, compute_);
          writer.write({side, layer, head, block}, host.vector_span(count), host.scale_span(count));
        }
  writer.finish();
  return part;
}

void KvFiles::restore(const std::filesystem::path& folder, const io::KvSave& save, int64_t first,
                      int64_t count) const {
  check(save, folder);
  if (first == 0 && (save.recent_from > 0 || save.states.any()))
    for (const KvLayers layers : {KvLayers::without_window, KvLayers::with_window}) {
      const std::vector<int64_t> of = layers_of(layers);
      if (of.empty()) continue;
      const HostTokens block(compute_, cache_.shape(of.front()), io::kv_block_tokens);
      verify(folder, save, layers, heads_of(of.front()), block, compute_);
    }
  PECIA_CHECK(attention_.positions().size() == attention_.slots().size(), "{} rows, {} slots",
              attention_.positions().size(), attention_.slots().size());
  if (attention_.slots().empty()) return;
  if (save.window_layers == 0 && !has_files_by_window())
    return restore(KvLayers::all, folder, save, first, count);
  restore(KvLayers::without_window, folder, save, first, count);
  restore(KvLayers::with_window, folder, save, first, count);
}

/// These layers have one kind of slots, and of each file either all layers or the same ones.
void KvFiles::restore(KvLayers layers, const std::filesystem::path& folder, const io::KvSave& save,
                      int64_t first, int64_t count) const {
  const std::vector<int64_t> restored = layers_of(layers);
  if (restored.empty()) return;
  const KvShape& cache = cache_.shape(restored.front());
  const std::vector<int64_t>& positions = attention_.positions();
  const std::vector<int64_t>& slots = attention_.slots(cache_.retention(restored.front()));
  std::vector<int64_t> row_of(count, -1);
  for (size_t row = 0; row < positions.size(); ++row)
    row_of.at(positions[row] - first) = static_cast<int64_t>(row);
  // Rows that the save must have.
  const int64_t from = layers == KvLayers::with_window ? save.recent_from : 0;
  const int64_t needed =
      std::ranges::count_if(positions, [&](int64_t position) { return position >= from; });

  const parallel::HeadRange heads = heads_of(restored.front());
  const std::vector<int64_t> all = layers_of(KvLayers::all);
  // The layer's place in a file, or outside of it.
  const auto in_file = [&](const io::KvPart& part, int64_t layer) {
    const bool has_all = part.layers == KvLayers::all;
    return (has_all ? others_.before.count(KvLayers::all) + place_of(all, restored[layer])
                    : others_.before.count(layers) + layer) -
           save.range_of(part).begin;
  };
  const auto has_layer = [&](const io::KvPart& part, int64_t layer) {
    const io::KvSave::LayerRange range = save.range_of(part);
    const int64_t at = in_file(part, layer);
    return 0 <= at && at < range.end - range.begin;
  };
  std::vector<Wanted> wanted;
  std::vector<int64_t> found(heads.size() * std::ssize(restored));  // of these rows, by head, layer
  for (const io::KvPart& part : save.parts) {
    if (part.head_end <= heads.begin || part.head_begin >= heads.end) continue;
    if (part.layers != layers && part.layers != KvLayers::all) continue;
    auto matches = matches_of(part, first, row_of);
    if (matches.empty()) continue;
    const int64_t among = std::ranges::count_if(
        matches, [&](const Match& match) { return positions[match.row] >= from; });
    for (int64_t head = std::max(part.head_begin, heads.begin);
         head < std::min(part.head_end, heads.end); ++head)
      for (int64_t layer = 0; layer < std::ssize(restored); ++layer)
        if (has_layer(part, layer))
          found[(head - heads.begin) * std::ssize(restored) + layer] += among;
    wanted.push_back({part, io::KvFileReader(folder / part.file, save.shape_of(part), part.stamp),
                      std::move(matches)});
  }
  for (const int64_t rows : found)
    if (rows != needed)
      fail<InputError>("{} has {} of {} tokens from position {} on", folder.string(), rows, needed,
                       first);

  std::vector<SlotRange> slot_ranges;
  for (const int64_t slot : slots) append(slot_ranges, {slot, slot + 1});
  const HostTokens rows(compute_, cache, std::ssize(slots));
  // A key that is not seen weighs 0, but its value has to be a number.
  std::ranges::fill(rows.vector_span(std::ssize(slots)), std::byte{});
  std::ranges::fill(rows.scale_span(std::ssize(slots)), 0.0f);
  const HostTokens block(compute_, cache, io::kv_block_tokens);
  const auto copy_token = [&](int64_t token, int64_t row) {
    std::copy_n(block.vectors.as<std::byte>() + token * block.vector_bytes, block.vector_bytes,
                rows.vectors.as<std::byte>() + row * rows.vector_bytes);
    if (cache.dtype == DType::fp8) rows.scales.as<float>()[row] = block.scales.as<float>()[token];
  };
  const io::KvFileShape sides{.sides = sides_of(cache)};
  for (const KvSide side : sides.sides_stored())
    for (int64_t layer = 0; layer < std::ssize(restored); ++layer)
      for (int64_t head = heads.begin; head < heads.end; ++head) {
        for (const Wanted& file : wanted) {
          if (head < file.part.head_begin || head >= file.part.head_end) continue;
          if (!has_layer(file.part, layer)) continue;
          const int64_t of_file = in_file(file.part, layer);
          int64_t read = -1;
          for (const Match& match : file.matches) {
            const int64_t at = match.token / io::kv_block_tokens;
            if (at != read) {
              const int64_t tokens = save.shape_of(file.part).tokens_of_block(at);
              file.reader.read({side, of_file, head - file.part.head_begin, at},
                               block.vector_span(tokens), block.scale_span(tokens));
              compute_.stream.poll();
              read = at;
            }
            copy_token(match.token % io::kv_block_tokens, match.row);
          }
        }
        copy_tokens(CopyDirection::to_cache, stored(cache_, side, restored[layer]),
                    head - heads.begin, rows, slot_ranges, compute_);
      }
}

}  // namespace pecia::attention
