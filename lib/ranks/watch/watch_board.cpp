// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/watch/watch_board.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "lib/base/core/error.hpp"

namespace pecia::watch {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_prefix = ".watch-";
constexpr const char* rank_prefix = "rank-";
constexpr const char* spoken = "spoken";      // exists once a rank has said why the run ends
constexpr const char* output_is_new = "new";  // exists if the output folder was made with the board

template <size_t N>
void assign(std::array<char, N>& to, const char* text) {
  std::strncpy(to.data(), text, N - 1);
}

/// A file that is closed by the destructor. On NFS only closing it, and opening it again, makes
/// writes visible on other hosts.
class File {
 public:
  File(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Whether no process holds the file's lock; false in doubt.
bool is_free(const fs::path& path) {
  const File file(path, O_RDONLY);
  // The lock is shared, so that two simultaneous checks do not see each other's lock.
  return file.ok() && ::flock(file.get(), LOCK_SH | LOCK_NB) == 0;
}

bool is_rank(const fs::path& path) {
  return path.filename().string().starts_with(rank_prefix);
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code ignored;  // callers can do without the entries
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) found.push_back(entry.path());
  return found;
}

std::optional<RankRecord> read_record(const fs::path& path) {
  const File file(path, O_RDONLY);
  RankRecord record;
  if (!file.ok() || ::pread(file.get(), &record, sizeof(record), 0) != sizeof(record)) return {};
  record.host.back() = record.phase.back() = record.span.back() = record.operation.back() = '\0';
  if (record.left != 0) return {};
  return record;
}

bool is_dead(const fs::path& path) {
  if (!is_free(path)) return false;
  const auto record = read_record(path);
  return record && record->unlocked == 0;
}

bool write_whole(int fd, const RankRecord& record) {
  return ::pwrite(fd, &record, sizeof(record), 0) == static_cast<ssize_t>(sizeof(record));
}

}  // namespace

std::optional<int64_t> RankRecord::number_in(uint64_t series_group) const {
  for (const Series& one : series)
    if (one.group == series_group) return one.number;
  return {};
}

RankRecord record_of(const Activity& activity, const std::string& host) {
  RankRecord record;
  assign(record.host, host.c_str());
  assign(record.phase, activity.phase);
  assign(record.span, activity.span);
  record.layer = activity.layer;
  record.pass = activity.pass;
  record.team = activity.team;
  record.instance = activity.instance;
  assign(record.operation, activity.wait.operation);
  record.group = activity.wait.group;
  record.number = activity.wait.number;
  for (size_t i = 0; i < record.series.size(); ++i)
    record.series[i] = {activity.series[i].group, activity.series[i].number};
  return record;
}

fs::path WatchBoard::make_folder(const fs::path& output) {
  std::error_code error;
  const bool made = fs::create_directories(output, error);
  if (error) fail<SystemError>("{} cannot be made: {}", output.string(), error.message());
  std::string name = (output / folder_prefix).string() + "XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    fail<SystemError>("no folder can be made in {}: {}", output.string(), std::strerror(errno));
  const fs::path folder = name;
  if (made) File(folder / output_is_new, O_WRONLY | O_CREAT);
  return folder;
}

void WatchBoard::remove_others(const fs::path& folder) {
  for (const fs::path& other : entries(folder.parent_path())) {
    if (!other.filename().string().starts_with(folder_prefix) || other == folder) continue;
    const auto files = entries(other);
    const bool abandoned = std::ranges::all_of(
        files, [](const fs::path& file) { return !is_rank(file) || is_free(file); });
    std::error_code ignored;  // leftovers disturb no other run
    if (abandoned) fs::remove_all(other, ignored);
  }
}

WatchBoard::WatchBoard(fs::path folder, int rank, int size)
    : folder_(std::move(folder)), rank_(rank), size_(size) {
  File file(path(rank), O_RDWR | O_CREAT | O_EXCL);
  if (!file.ok())
    fail<SystemError>("{} cannot be made: {}", path(rank).string(), std::strerror(errno));
  shown_.unlocked = ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : 1;
  if (!write_whole(file.get(), shown_))
    fail<SystemError>("{} cannot be written: {}", path(rank).string(), std::strerror(errno));
  lock_ = file.release();
}

WatchBoard::~WatchBoard() {
  shown_.left = 1;
  write_whole(lock_, shown_);
  std::error_code ignored;
  fs::remove(path(rank_), ignored);
  if (std::ranges::none_of(entries(folder_), is_rank)) {
    const bool made = fs::exists(folder_ / output_is_new, ignored);
    fs::remove_all(folder_, ignored);
    if (made) fs::remove(folder_.parent_path(), ignored);  // fails when the folder is not empty
  }
  ::close(lock_);
}

fs::path WatchBoard::path(int rank) const {
  return folder_ / fmt::format("{}{}", rank_prefix, rank);
}

void WatchBoard::show(const RankRecord& record) {
  const int64_t beats = shown_.beats + 1;
  const uint8_t unlocked = shown_.unlocked;
  shown_ = record;
  shown_.beats = beats;
  shown_.unlocked = unlocked;
  const File file(path(rank_), O_WRONLY);
  if (file.ok()) write_whole(file.get(), shown_);
}

std::optional<RankRecord> WatchBoard::read(int rank) const {
  return read_record(path(rank));
}

bool WatchBoard::is_dead(int rank) const {
  return watch::is_dead(path(rank));
}

bool WatchBoard::first_to_speak() {
  // In doubt, as when another process has removed the folder, two reports are better than none.
  return File(folder_ / spoken, O_WRONLY | O_CREAT | O_EXCL).ok() || errno != EEXIST;
}

}  // namespace pecia::watch
