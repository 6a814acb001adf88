// SPDX-License-Identifier: Apache-2.0
#include "lib/files/checkpoint/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/checkpoint/safetensors_header.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/disk/mapped_file.hpp"
#include "lib/files/disk/sha256.hpp"
#include "lib/files/disk/strict_json.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

std::string_view text_in(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Whether the name is a plain file name, which cannot leave its folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string::npos;
}

/// Tensor name → shard name, from the index file.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const MappedFile file(path);
  const nlohmann::json index = parse_strict_json(path, text_in(file));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object())
    fail<InputError>("{} has no object 'weight_map'; download the checkpoint again", path.string());
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !is_file_name(shard.get<std::string>()))
      fail<InputError>("{}: tensor '{}' is said to be in {}, which is no file name in this folder",
                       path.string(), tensor, json_text(shard));
    shard_of.emplace(tensor, shard.get<std::string>());
  }
  return shard_of;
}

struct Listing {
  std::vector<fs::path> files;
  std::map<std::string, std::string> shard_of;  ///< what the index says; empty without one
};

Listing list_files(const fs::path& folder) {
  std::error_code ignored;  // files that cannot be examined count as absent
  if (!fs::is_directory(folder, ignored))
    fail<InputError>("{} is no folder; name the folder of a Hugging Face checkpoint",
                     folder.string());
  if (fs::exists(folder / single_name, ignored))  // first, as in transformers
    return {{folder / single_name}, {}};
  const fs::path index = folder / index_name;
  if (!fs::exists(index, ignored))
    fail<InputError>(
        "{} holds neither {} nor {}; only safetensors checkpoints are read, so convert other "
        "formats first",
        folder.string(), single_name, index_name);
  Listing listing{{}, read_index(index)};
  std::set<std::string> named;
  for (const auto& [tensor, shard] : listing.shard_of) {
    if (!named.insert(shard).second) continue;
    if (!fs::exists(folder / shard, ignored))
      fail<InputError>("{}: tensor '{}' is said to be in {}, which is missing; download it",
                       index.string(), tensor, shard);
    listing.files.push_back(folder / shard);
  }
  return listing;
}

TensorView view_of(const void* data, const StoredTensor& tensor, const fs::path& path) {
  const std::vector<int64_t>& s = tensor.shape;
  switch (s.size()) {
    case 0:
      return TensorView(data, tensor.dtype, {1});
    case 1:
      return TensorView(data, tensor.dtype, {s[0]});
    case 2:
      return TensorView(data, tensor.dtype, {s[0], s[1]});
    case 3:
      return TensorView(data, tensor.dtype, {s[0], s[1], s[2]});
    case 4:
      return TensorView(data, tensor.dtype, {s[0], s[1], s[2], s[3]});
  }
  fail<Unsupported>("{}: tensor '{}' has {} dimensions; at most {} are supported", path.string(),
                    tensor.name, s.size(), TensorView::max_rank);
}

}  // namespace

struct Checkpoint::Impl {
  struct Shard {
    fs::path path;
    MappedFile file;
  };
  struct Entry {
    StoredTensor tensor;
    size_t shard = 0;
  };

  Impl(const fs::path& folder, const Place& place) {
    const Listing listing = list_files(folder);
    for (const fs::path& file : listing.files) add_shard(file, place(file));
    check_index(folder / index_name, listing.shard_of);
  }

  void check_index(const fs::path& index, const std::map<std::string, std::string>& shard_of) {
    for (const auto& [tensor, shard] : shard_of) {
      const auto found = entries.find(tensor);
      if (found == entries.end() || shards[found->second.shard].path.filename() != shard)
        fail<InputError>(
            "{}: tensor '{}' is said to be in {}, which does not hold it; index and shards are of "
            "different checkpoints",
            index.string(), tensor, shard);
    }
  }

  /// `place` holds the content of `path`, which messages name.
  void add_shard(const fs::path& path, const fs::path& place) {
    shards.push_back({path, MappedFile(place)});
    for (StoredTensor& tensor : read_safetensors_header(path, shards.back().file.bytes())) {
      const std::string name = tensor.name;
      const auto [at, added] =
          entries.try_emplace(name, Entry{std::move(tensor), shards.size() - 1});
      if (!added)
        fail<InputError>("{}: tensor '{}' is in {} too; which one counts cannot be known",
                         path.string(), name, shards[at->second.shard].path.filename().string());
    }
  }

  const Entry& entry(const std::string& name) const {
    const auto found = entries.find(name);
    if (found == entries.end())
      fail<InputError>("{}: there is no tensor '{}' in this checkpoint",
                       shards.front().path.parent_path().string(), name);
    return found->second;
  }

  /// The tensor's bytes. They are copied once where the file does not align them to the element
  /// size.
  const void* aligned_data(const std::string& name, const Entry& entry) {
    const StoredTensor& tensor = entry.tensor;
    const std::byte* data = shards[entry.shard].file.bytes().data() + tensor.begin;
    if (reinterpret_cast<uintptr_t>(data) % size_of(tensor.dtype) == 0) return data;
    const std::lock_guard lock(copies_mutex);
    std::vector<std::byte>& copy = copies[name];
    if (copy.empty()) copy.assign(data, data + (tensor.end - tensor.begin));
    return copy.data();
  }

  std::vector<Shard> shards;
  std::map<std::string, Entry> entries;
  std::mutex copies_mutex;
  std::map<std::string, std::vector<std::byte>> copies;
};

std::vector<fs::path> checkpoint_files(const fs::path& folder) {
  return list_files(folder).files;
}

Checkpoint::Checkpoint(const fs::path& folder)
    : Checkpoint(folder, [](const fs::path& file) { return file; }) {}
Checkpoint::Checkpoint(const fs::path& folder, const Place& place)
    : impl_(std::make_unique<Impl>(folder, place)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : impl_->entries) names.push_back(name);
  return names;
}

bool Checkpoint::contains(const std::string& name) const {
  return impl_->entries.contains(name);
}

TensorView Checkpoint::tensor(const std::string& name) const {
  const Impl::Entry& entry = impl_->entry(name);
  return view_of(impl_->aligned_data(name, entry), entry.tensor, impl_->shards[entry.shard].path);
}

fs::path Checkpoint::file_of(const std::string& name) const {
  return impl_->shards[impl_->entry(name).shard].path;
}

void Checkpoint::release_pages() const {
  for (const auto& shard : impl_->shards) shard.file.release_pages();
}

int64_t Checkpoint::total_bytes() const {
  int64_t total = 0;
  for (const auto& [name, entry] : impl_->entries) total += entry.tensor.end - entry.tensor.begin;
  return total;
}

std::string Checkpoint::index_sha256() const {
  Sha256 hash;
  for (const auto& [name, entry] : impl_->entries) {
    // There is one JSON array per line, so that no name can be mistaken for part of another field.
    const nlohmann::json line = {name,
                                 name_of(entry.tensor.dtype),
                                 entry.tensor.shape,
                                 impl_->shards[entry.shard].path.filename().string(),
                                 entry.tensor.begin,
                                 entry.tensor.end};
    hash.update(json_text(line) + "\n");
  }
  return hash.hex();
}

std::string sha256_of_file(const fs::path& path) {
  constexpr int64_t piece_bytes = 1 << 20;
  const File file = File::open_input(path);
  const int64_t size = file.size();
  std::vector<std::byte> piece(std::min(size, piece_bytes));
  Sha256 hash;
  for (int64_t offset = 0; offset < size; offset += piece_bytes) {
    const auto part = std::span(piece).first(std::min(piece_bytes, size - offset));
    file.read_at(offset, part);
    hash.update(part);
  }
  return hash.hex();
}

}  // namespace pecia::io
