#include "lib/comm/watch_board.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "lib/core/error.hpp"

namespace pecia::comm {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder_prefix = ".watch-";
constexpr const char* spoken = "spoken";

template <size_t N>
void assign(std::array<char, N>& to, const char* text) {
  std::strncpy(to.data(), text, N - 1);
}

/// Closed at the end: on NFS that, and opening anew, is what makes writes seen on other hosts.
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
  assign(record.operation, activity.wait.operation);
  record.group = activity.wait.group;
  record.number = activity.wait.number;
  for (size_t i = 0; i < record.series.size(); ++i)
    record.series[i] = {activity.series[i].group, activity.series[i].number};
  return record;
}

fs::path WatchBoard::make_folder(const fs::path& output) {
  std::error_code error;
  fs::create_directories(output, error);
  if (error) fail<SystemError>("{} cannot be made: {}", output.string(), error.message());
  std::string name = (output / folder_prefix).string() + "XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    fail<SystemError>("no folder can be made in {}: {}", output.string(), std::strerror(errno));
  return name;
}

void WatchBoard::remove_others(const fs::path& folder) {
  std::error_code ignored;  // what is left is in nobody's way
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder.parent_path(), ignored))
    if (entry.path().filename().string().starts_with(folder_prefix) && entry.path() != folder)
      others.push_back(entry.path());
  for (const fs::path& other : others) fs::remove_all(other, ignored);
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
  bool others = false;
  for (const auto& entry : fs::directory_iterator(folder_, ignored))
    others = others || entry.path().filename() != spoken;
  if (!others) fs::remove_all(folder_, ignored);
  ::close(lock_);
}

fs::path WatchBoard::path(int rank) const {
  return folder_ / fmt::format("rank-{}", rank);
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
  const File file(path(rank), O_RDONLY);
  RankRecord record;
  if (!file.ok() || ::pread(file.get(), &record, sizeof(record), 0) != sizeof(record)) return {};
  record.host.back() = record.phase.back() = record.span.back() = record.operation.back() = '\0';
  if (record.left != 0) return {};
  return record;
}

bool WatchBoard::is_dead(int rank) const {
  const File file(path(rank), O_RDONLY);
  // Shared, so that two who look at once do not see each other.
  if (!file.ok() || ::flock(file.get(), LOCK_SH | LOCK_NB) != 0) return false;
  const auto record = read(rank);
  return record && record->unlocked == 0;
}

bool WatchBoard::first_to_speak() {
  return File(folder_ / spoken, O_WRONLY | O_CREAT | O_EXCL).ok();
}

void WatchBoard::remove() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace pecia::comm
