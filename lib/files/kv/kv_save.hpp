// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The save of one request's keys and values: a folder with files of kv_file.hpp and `save.json`,
/// which describes them. save.json is written last and replaced as a whole. A folder without it
/// holds no save, and files that it does not name are not part of the save.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lib/files/kv/kv_file.hpp"

namespace pecia::io {

/// The layers that a file has. Where layers with a window keep recent tokens alone, or have heads of
/// their own, they and the other layers have files of their own. A file of states has no keys, but
/// what KvStates says.
enum class KvLayers : uint8_t { all, without_window, with_window, states, state_tails };

/// KV heads of a layer, in the whole model.
struct KvHeads {
  int64_t count = 0, dim = 0;
  bool operator==(const KvHeads&) const = default;
};

/// The states of recurrent layers, in the whole model; zeros: there are none. A state is that after
/// all tokens of the save. Its files are like those of keys alone in fp32: heads are those of the
/// recurrence, and in place of tokens stand rows.
///
///     states       of a head: its matrix, [key_dim, value_dim], then [tail_rows, value_dim]: the
///                  last rows of v before the convolution
///     state_tails  of a key head: the last rows of q, and then of k, [tail_rows, key_dim] each
struct KvStates {
  int64_t layers = 0, heads = 0, key_heads = 0, key_dim = 0, value_dim = 0, tail_rows = 0;
  bool operator==(const KvStates&) const = default;

  bool any() const { return layers > 0; }
};

/// One file, with some heads of some positions. Of states these are the last position alone.
struct KvPart {
  std::string file;  ///< name of the file in the folder
  int64_t stamp = 0;
  int64_t head_begin = 0, head_end = 0;
  std::vector<KvPositions> positions;  ///< in the order of the file's tokens
  KvLayers layers = KvLayers::all;
  /// Of these layers of the model, those that the file has: of a stage; 0 and 0: all.
  int64_t layer_begin = 0, layer_end = 0;

  int64_t tokens() const;
  template <typename A>
  void visit(A& archive) {
    archive(file), archive(stamp), archive(head_begin), archive(head_end), archive(positions),
        archive(layers), archive(layer_begin), archive(layer_end);
  }
};

struct KvSave {
  std::string identity;  ///< everything besides the tokens that keys and values depend on
  std::string request_id;
  int64_t row = 0;            ///< row of the request's first turn in the results
  int64_t tokens = 0;         ///< the save holds positions [0, tokens)
  std::string tokens_sha256;  ///< of the token ids of these positions, int32 one after another
  int64_t layers = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::fp32;
  int64_t sides = 2;  ///< KvFileShape::sides
  /// Where layers with a window have files of their own: how many layers, the first position from
  /// which on these have all tokens, and the fewest of the save's tokens whose last one still has
  /// its window there. 0: all layers are in one file, and have all tokens.
  int64_t window_layers = 0, recent_from = 0, least = 0;
  KvHeads window_heads = {};  ///< of these layers, where they are others; zeros: they are not
  KvStates states = {};       ///< with them, `least` is all tokens
  int64_t bytes = 0;          ///< sum over all files
  std::vector<KvPart> parts;

  KvHeads heads_of(KvLayers which) const;
  KvFileShape shape_of(const KvPart& part) const;
  /// Of the part's kind of layers, those that its file has.
  struct LayerRange {
    int64_t begin = 0, end = 0;
  };
  LayerRange range_of(const KvPart& part) const;
  /// Whether the part's heads and layers are in the model.
  bool has_place_for(const KvPart& part) const;

 private:
  int64_t layers_of(KvLayers which) const;
};

/// Whether files of these layers have states.
inline bool are_states(KvLayers which) {
  return which == KvLayers::states || which == KvLayers::state_tails;
}

inline constexpr const char* kv_save_file = "save.json";

/// Makes the files in `folder` a save that replaces an earlier one; durable on return. Throws
/// SystemError when the disk is full.
void write_kv_save(const std::filesystem::path& folder, const KvSave& save);

/// Absent when `folder` holds no save. Throws InputError when the save is damaged or has another
/// schema.
std::optional<KvSave> read_kv_save(const std::filesystem::path& folder);

/// Removes the whole folder of the save, beginning with save.json. Files that cannot be removed
/// stay. Of a link only the link is removed.
void remove_kv_save(const std::filesystem::path& folder) noexcept;

/// Removes files in the folder that the save does not name; a killed run leaves such files.
void remove_unnamed_files(const std::filesystem::path& folder, const KvSave& save) noexcept;

}  // namespace pecia::io
