// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/results/results.hpp"
#include "lib/files/results/results_schema.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

/// A new file, which is removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& path) : path_(path), file_(File::make(path)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }

  const File& file() const { return file_; }
  void rename_to(const fs::path& target) {
    file_.rename_to(target);
    path_.clear();
  }

 private:
  fs::path path_;
  File file_;
};

/// Fails before HDF5 is involved. An HDF5 file that cannot be closed for lack of room makes the
/// library crash at exit.
void check_room(const File& file, int64_t file_bytes, int64_t written_bytes) {
  int error = ::posix_fallocate(file.descriptor(), 0, written_bytes);
  if (error == 0 && ::ftruncate(file.descriptor(), file_bytes) != 0) error = errno;
  if (error != 0)
    fail<SystemError>("{} cannot be made of {} bytes: {}", file.path().string(), file_bytes,
                      errno_text(error));
}

template <typename T, typename Field>
std::vector<T> column(const std::vector<ResultTurn>& turns, Field field) {
  std::vector<T> values;
  values.reserve(turns.size());
  for (const ResultTurn& turn : turns) values.push_back(static_cast<T>(turn.*field));
  return values;
}

std::vector<char> id_column(const std::vector<ResultTurn>& turns, int64_t width) {
  std::vector<char> text(turns.size() * width);
  for (size_t t = 0; t < turns.size(); ++t)
    turns[t].request_id.copy(text.data() + t * width, width);
  return text;
}

bool written_by_create(std::string_view dataset) {
  for (const char* name : {"/request_id", "/shard", "/request", "/turn", "/prompt_tokens",
                           "/slot_offsets", "/prompt_slot_offsets", "/settings", "/vector_offsets",
                           "/score_offsets", "/score_token_offsets"})
    if (dataset == name) return true;
  return false;
}

void write_file(const File& to, const ResultsLayout& layout,
                const std::vector<ResultsDataset>& datasets) {
  Hdf5File file = Hdf5File::create(to);
  file.set_attribute("schema", std::string(results_schema));
  file.set_attribute("created_by", "pecia " + build_info().version + " " + build_info().commit);
  file.set_attribute("identity", layout.identity);
  file.set_attribute("measured", layout.measured);
  // Paths need not be UTF-8. This attribute only tells readers which file was meant; nothing opens
  // it.
  file.set_attribute("inputs", json_text(nlohmann::json(layout.inputs)));
  file.set_attribute("settings", fmt::format("[{}]", fmt::join(layout.settings, ",")));
  file.set_attribute("vocab_size", layout.vocab);
  file.set_attribute("logprobs", int64_t{layout.logprobs});
  file.set_attribute("prompt_logprobs", int64_t{layout.prompt_logprobs});

  for (const ResultsDataset& spec : datasets) {
    const Hdf5Type type = hdf5_type(spec);
    const Hdf5Dataset dataset = file.create_dataset(spec.name, type.get(), spec.extents);
    const std::string_view name = spec.name;
    const auto write = [&](const auto& values) { dataset.write(type.get(), values.data()); };
    if (name == "/request_id") write(id_column(layout.turns, spec.element_bytes));
    if (name == "/shard") write(column<int32_t>(layout.turns, &ResultTurn::shard));
    if (name == "/request") write(column<int64_t>(layout.turns, &ResultTurn::request));
    if (name == "/turn") write(column<int32_t>(layout.turns, &ResultTurn::turn));
    if (name == "/prompt_tokens") write(column<int32_t>(layout.turns, &ResultTurn::prompt_tokens));
    if (name == "/settings") write(column<int32_t>(layout.turns, &ResultTurn::settings));
    if (name == "/slot_offsets") write(slot_offsets(layout));
    if (name == "/prompt_slot_offsets") write(prompt_slot_offsets(layout));
    if (name == "/vector_offsets") write(vector_offsets(layout));
    if (name == "/score_offsets") write(score_offsets(layout));
    if (name == "/score_token_offsets") write(score_token_offsets(layout));
  }
  file.close();
}

}  // namespace

void ResultsFile::create(const fs::path& path, const ResultsLayout& layout) {
  const auto datasets = results_datasets(layout);
  // HDF5 adds about 30 KiB of its own.
  int64_t written_bytes =
      (1 << 20) + static_cast<int64_t>(layout.identity.size() + layout.measured.size());
  for (const std::string& input : layout.inputs) written_bytes += 2 * input.size();
  for (const std::string& settings : layout.settings) written_bytes += settings.size();
  int64_t total_bytes = written_bytes;
  for (const ResultsDataset& dataset : datasets) {
    if (__builtin_add_overflow(total_bytes, dataset.bytes(), &total_bytes))
      fail<InputError>(
          "{} would need more than 2^63 bytes; ask for fewer new tokens or log-probabilities",
          path.string());
    if (written_by_create(dataset.name)) written_bytes += dataset.bytes();
  }
  if (fs::exists(path))
    fail<InputError>("{} exists; continue it, or remove it to start anew", path.string());

  TemporaryFile temporary(path.string() + ".unfinished");
  try {
    check_room(temporary.file(), total_bytes, written_bytes);
    write_file(temporary.file(), layout, datasets);
    temporary.file().sync_data();
  } catch (const SystemError& error) {
    std::error_code unknown;
    const fs::space_info space = fs::space(fs::absolute(path).parent_path(), unknown);
    fail<SystemError>(
        "{}\nThe results need up to {} bytes, {} are free; choose another output folder or ask for "
        "fewer log-probabilities",
        error.what(), total_bytes, unknown ? "an unknown number" : std::to_string(space.available));
  }
  temporary.rename_to(path);
  sync_folder(path.parent_path());
}

}  // namespace pecia::io
