// SPDX-License-Identifier: Apache-2.0
#include "lib/files/kv/kv_save.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "lib/base/core/json.hpp"
#include "lib/base/report/atomic_file.hpp"
#include "lib/files/disk/sha256.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* save_schema = "pecia.kv-save/2";
constexpr std::array<std::string_view, 5> layers_words{"all", "without_window", "with_window",
                                                       "states", "state_tails"};
constexpr std::array dtypes = {DType::fp32, DType::bf16, DType::fp16, DType::fp8};

Json to_json(const KvPart& part) {
  Json positions = Json::array();
  for (const KvPositions& range : part.positions)
    positions.push_back({range.begin, range.count, range.stride});
  Json json{{"file", part.file},
            {"stamp", part.stamp},
            {"head_begin", part.head_begin},
            {"head_end", part.head_end},
            {"layers", std::string(layers_words.at(static_cast<size_t>(part.layers)))},
            {"positions", positions}};
  if (part.layer_end > 0) json["layer_range"] = {part.layer_begin, part.layer_end};
  return json;
}

/// Formats JSON in which a request id may be any bytes.
std::string sha256_of(const std::string& text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

KvPart part_of(const Json& json) {
  KvPart part;
  part.file = json.at("file").get<std::string>();
  part.stamp = json.at("stamp").get<int64_t>();
  part.head_begin = json.at("head_begin").get<int64_t>();
  part.head_end = json.at("head_end").get<int64_t>();
  const auto word = json.at("layers").get<std::string>();
  const auto found = std::ranges::find(layers_words, word);
  if (found == layers_words.end()) fail<InputError>("layers are '{}'", word);
  part.layers = static_cast<KvLayers>(found - layers_words.begin());
  if (json.contains("layer_range")) {
    part.layer_begin = json.at("layer_range").at(0).get<int64_t>();
    part.layer_end = json.at("layer_range").at(1).get<int64_t>();
  }
  for (const Json& range : json.at("positions"))
    part.positions.push_back(
        {range.at(0).get<int64_t>(), range.at(1).get<int64_t>(), range.at(2).get<int64_t>()});
  return part;
}

Json to_json(const KvStates& states) {
  return {{"layers", states.layers},       {"heads", states.heads},
          {"key_heads", states.key_heads}, {"key_dim", states.key_dim},
          {"value_dim", states.value_dim}, {"tail_rows", states.tail_rows}};
}

KvStates states_of(const Json& json) {
  const auto number = [&](const char* key) { return json.at(key).get<int64_t>(); };
  return {number("layers"),  number("heads"),     number("key_heads"),
          number("key_dim"), number("value_dim"), number("tail_rows")};
}

DType dtype_named(const std::string& name) {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(),
                                  [&](DType dtype) { return name_of(dtype) == name; });
  if (found == dtypes.end()) fail<InputError>("dtype is '{}'", name);
  return *found;
}

}  // namespace

int64_t KvPart::tokens() const {
  int64_t count = 0;
  for (const KvPositions& range : positions) count += range.count;
  return count;
}

int64_t KvSave::layers_of(KvLayers which) const {
  switch (which) {
    case KvLayers::all:
      return layers;
    case KvLayers::without_window:
      return layers - window_layers;
    case KvLayers::with_window:
      return window_layers;
    case KvLayers::states:
    case KvLayers::state_tails:
      break;
  }
  return states.layers;
}

KvHeads KvSave::heads_of(KvLayers which) const {
  if (which == KvLayers::states) return {states.heads, states.value_dim};
  if (which == KvLayers::state_tails) return {states.key_heads, states.key_dim};
  const bool others = which == KvLayers::with_window && window_heads.count > 0;
  return others ? window_heads : KvHeads{kv_heads, head_dim};
}

KvSave::LayerRange KvSave::range_of(const KvPart& part) const {
  if (part.layer_end == 0) return {0, layers_of(part.layers)};
  return {part.layer_begin, part.layer_end};
}

bool KvSave::has_place_for(const KvPart& part) const {
  const LayerRange range = range_of(part);
  return part.head_begin >= 0 && part.head_begin <= part.head_end &&
         part.head_end <= heads_of(part.layers).count && range.begin >= 0 &&
         range.begin <= range.end && range.end <= layers_of(part.layers);
}

KvFileShape KvSave::shape_of(const KvPart& part) const {
  const int64_t of_layers = range_of(part).end - range_of(part).begin;
  const int64_t heads = part.head_end - part.head_begin;
  const int64_t dim = heads_of(part.layers).dim;
  if (!are_states(part.layers)) return {of_layers, heads, part.tokens(), dim, dtype, sides};
  const int64_t rows =
      part.layers == KvLayers::states ? states.key_dim + states.tail_rows : 2 * states.tail_rows;
  return {of_layers, heads, rows, dim, DType::fp32, 1};
}

void write_kv_save(const fs::path& folder, const KvSave& save) {
  Json parts = Json::array();
  for (const KvPart& part : save.parts) parts.push_back(to_json(part));
  Json body{{"identity", save.identity},
            {"request_id", save.request_id},
            {"row", save.row},
            {"tokens", save.tokens},
            {"tokens_sha256", save.tokens_sha256},
            {"layers", save.layers},
            {"kv_heads", save.kv_heads},
            {"head_dim", save.head_dim},
            {"dtype", std::string(name_of(save.dtype))},
            {"sides", save.sides},
            {"window_layers", save.window_layers},
            {"recent_from", save.recent_from},
            {"least", save.least},
            {"window_heads", {save.window_heads.count, save.window_heads.dim}},
            {"bytes", save.bytes},
            {"parts", parts}};
  if (save.states.any()) body["states"] = to_json(save.states);
  sync_folder(folder);  // makes the files' names durable before save.json names them
  report::write_atomically(
      folder / kv_save_file,
      json_text(
          Json{{"schema", save_schema}, {"save", body}, {"sha256", sha256_of(json_text(body))}}) +
          "\n",
      kv_mode);
  sync_folder(folder);
}

std::optional<KvSave> read_kv_save(const fs::path& folder) {
  const fs::path path = folder / kv_save_file;
  std::error_code unreachable;
  if (!fs::exists(path, unreachable)) return {};
  const auto text = text_of_file(path);
  if (!text) fail<InputError>("{} cannot be read, or is no regular file", path.string());
  try {
    const Json json = parse_json<Json>(*text);
    if (json.at("schema") != save_schema) fail<InputError>("another schema");
    const Json& body = json.at("save");
    if (json.at("sha256") != sha256_of(json_text(body))) fail<InputError>("its sha256 is wrong");
    KvSave save;
    save.identity = body.at("identity").get<std::string>();
    save.request_id = body.at("request_id").get<std::string>();
    save.row = body.at("row").get<int64_t>();
    save.tokens = body.at("tokens").get<int64_t>();
    save.tokens_sha256 = body.at("tokens_sha256").get<std::string>();
    save.layers = body.at("layers").get<int64_t>();
    save.kv_heads = body.at("kv_heads").get<int64_t>();
    save.head_dim = body.at("head_dim").get<int64_t>();
    save.dtype = dtype_named(body.at("dtype").get<std::string>());
    save.sides = body.value("sides", int64_t{2});
    if (save.sides != 1 && save.sides != 2) fail<InputError>("{} sides", save.sides);
    save.window_layers = body.at("window_layers").get<int64_t>();
    save.recent_from = body.at("recent_from").get<int64_t>();
    save.least = body.at("least").get<int64_t>();
    const auto heads = body.value("window_heads", std::vector<int64_t>{0, 0});
    if (heads.size() != 2) fail<InputError>("window_heads of {} numbers", heads.size());
    save.window_heads = {heads[0], heads[1]};
    if (body.contains("states")) save.states = states_of(body.at("states"));
    save.bytes = body.at("bytes").get<int64_t>();
    for (const Json& part : body.at("parts")) save.parts.push_back(part_of(part));
    return save;
  } catch (const nlohmann::json::exception&) {
    fail<InputError>("{} is damaged: no whole description of a save", path.string());
  } catch (const InputError& error) {
    fail<InputError>("{} is damaged: {}", path.string(), error.what());
  }
}

void remove_kv_save(const fs::path& folder) noexcept {
  std::error_code ignored;
  if (!fs::is_symlink(folder, ignored)) fs::remove(folder / kv_save_file, ignored);
  fs::remove_all(folder, ignored);
}

void remove_unnamed_files(const fs::path& folder, const KvSave& save) noexcept try {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool named =
        name == kv_save_file || std::any_of(save.parts.begin(), save.parts.end(),
                                            [&](const KvPart& part) { return part.file == name; });
    if (!named) fs::remove(entry.path(), ignored);
  }
} catch (const std::exception&) {
  // Remaining files do no harm; the next save of the request tries again.
}

}  // namespace pecia::io
