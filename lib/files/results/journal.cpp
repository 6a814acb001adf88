// SPDX-License-Identifier: Apache-2.0
#include "lib/files/results/journal.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/displaced.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

/// The name that a file of the folder has; absent for other files.
std::optional<JournalName> journal_named(const std::string& text) {
  JournalName name;
  const char* const end = text.data() + text.size();
  const auto replica = std::from_chars(text.data(), end, name.replica);
  if (replica.ec != std::errc() || replica.ptr == end) return {};
  std::from_chars(replica.ptr + 1, end, name.number);
  if (file_name(name) != text) return {};
  return name;
}

/// The folder's entries; none where there is no folder.
std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    found.push_back(entry->path());
  if (error && error != std::errc::no_such_file_or_directory)
    fail<SystemError>("{}: its files cannot be listed: {}", folder.string(), error.message());
  return found;
}

std::vector<std::byte> bytes_at(const File& file, int64_t begin, int64_t count) {
  std::vector<std::byte> bytes(count);
  file.read_at(begin, bytes);
  return bytes;
}

}  // namespace

std::string file_name(const JournalName& name) {
  return fmt::format("{}-{}.rows", name.replica, name.number);
}

std::vector<JournalName> journals_in(const fs::path& folder) {
  std::vector<JournalName> found;
  for (const fs::path& path : paths_in(folder))
    if (const auto name = journal_named(path.filename().string())) found.push_back(*name);
  std::sort(found.begin(), found.end());
  return found;
}

void remove_journals(const fs::path& folder) {
  std::error_code error;
  for (const fs::path& path : paths_in(folder)) {
    const bool unfinished = path.extension() == ".part";
    if (!journal_named((unfinished ? path.stem() : path.filename()).string())) continue;
    if (!fs::remove(path, error) && error)
      fail<SystemError>("{} cannot be removed: {}", path.string(), error.message());
  }
  fs::remove(folder, error);  // unless others have put something into it
}

JournalWriter::JournalWriter(fs::path folder, int32_t replica, const ResultsFile& results,
                             int64_t most_bytes)
    : folder_(std::move(folder)),
      name_{replica, -1},
      results_(results),
      most_bytes_(most_bytes),
      head_(journal_head(results.layout())) {}

void JournalWriter::begin_next() {
  const JournalName next{name_.replica, name_.number + 1};
  const fs::path path = folder_ / file_name(next), part = path.string() + ".part";
  File file = File::make(part);
  try {
    file.write_at(0, std::as_bytes(std::span(head_)));
    file.sync_data();
    file.rename_to(path);
  } catch (const SystemError&) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw;
  }
  sync_folder(folder_);
  file.reserve(most_bytes_);
  file_ = std::move(file);
  name_ = next;
  end_ = std::ssize(head_);
}

void JournalWriter::append(std::span<const TurnUpdate> rows) {
  if (rows.empty()) return;
  results_.check(rows);
  std::vector<std::byte> bytes;
  for (const TurnUpdate& row : rows) append_row(row, bytes);
  try {
    if (!file_ || end_ >= most_bytes_) begin_next();
    file_->write_at(end_, bytes);
    file_->sync_data();
  } catch (const SystemError& error) {
    fail_unrecorded(error, results_.layout(), rows);
  }
  // Where the results have gone, too, the process that writes them says so.
  if (results_.is_in_place()) require_in_place(*file_);
  end_ += std::ssize(bytes);
}

JournalReader::JournalReader(fs::path path, std::string_view head) : path_(std::move(path)) {
  const File file(path_, Access::read);
  const std::vector<std::byte> bytes =
      bytes_at(file, 0, std::min<int64_t>(file.size(), std::ssize(head)));
  const std::string_view found(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (head.starts_with(found)) {
    if (found.size() == head.size()) at_ = std::ssize(head);
    return;
  }
  const auto line = [](std::string_view text) { return text.substr(0, text.find('\n')); };
  if (line(found) == line(head))
    fail<InputError>(
        "{} belongs to other results than those beside it; move it away, or begin anew with "
        "--fresh",
        path_.string());
  if (found.starts_with("pecia.journal/"))
    fail<InputError>(
        "{} is of schema '{}', this version reads '{}': continue with the version that wrote it, "
        "or begin anew with --fresh",
        path_.string(), line(found), line(head));
  fail<InputError>("{} is no journal of results; move it away", path_.string());
}

std::vector<JournalRow> JournalReader::read(int64_t most_bytes) {
  std::vector<JournalRow> rows;
  const File file(path_, Access::read);
  const int64_t size = file.size();
  bytes_left_ = size - at_;
  if (at_ == 0) return rows;  // it ends within its head
  constexpr int64_t least_bytes = int64_t{64} << 10;
  most_bytes = std::min(std::max(most_bytes, least_bytes), bytes_left_);
  std::vector<std::byte> bytes = bytes_at(file, at_, most_bytes);
  if (const auto first = row_bytes(bytes); first && *first > most_bytes && *first <= bytes_left_)
    bytes = bytes_at(file, at_, *first);
  std::span<const std::byte> rest = bytes;
  try {
    while (auto row = take_row(rest)) rows.push_back(std::move(*row));
  } catch (const InvalidArgument& error) {
    fail<InputError>("{}: the row at offset {} is damaged: {}", path_.string(),
                     size - bytes_left_ + std::ssize(bytes) - std::ssize(rest), error.what());
  }
  at_ += std::ssize(bytes) - std::ssize(rest);
  bytes_left_ = size - at_;
  return rows;
}

}  // namespace pecia::io
