// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/run_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/text/utf8.hpp"

namespace pecia::io {
namespace {

struct Holder {
  std::string host, started, command;
  int64_t pid = 0;
  std::string process_start;  ///< clock ticks since boot; tells apart processes with equal pid
};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Field 22 of /proc/PID/stat, counted after the command's closing parenthesis. Empty when there is
/// no such process.
std::string process_start(int64_t pid) {
  const std::string stat = text_of_file(fmt::format("/proc/{}/stat", pid)).value_or("");
  const size_t command_end = stat.rfind(')');
  if (command_end == std::string::npos) return {};
  size_t begin = command_end + 1;
  for (int field = 2; field < 21; ++field) begin = stat.find(' ', begin) + 1;
  begin = stat.find(' ', begin) + 1;
  return stat.substr(begin, stat.find(' ', begin) - begin);
}

Holder this_process() {
  std::string command = text_of_file("/proc/self/cmdline").value_or("");
  std::replace(command.begin(), command.end(), '\0', ' ');
  if (command.ends_with(' ')) command.pop_back();
  return {host_name(), fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          fitted_utf8(command, 4096), ::getpid(), process_start(::getpid())};
}

std::string to_text(const Holder& holder) {
  const nlohmann::ordered_json fields = {{"host", holder.host},
                                         {"pid", holder.pid},
                                         {"started", holder.started},
                                         {"command", holder.command},
                                         {"process_start", holder.process_start}};
  return json_text(fields, 2) + "\n";
}

/// The holder named in the lock file. Its host is empty when the file cannot be read (it is being
/// written, or cut off).
Holder holder_of(const std::filesystem::path& path) {
  const auto fields = try_json<nlohmann::json>(text_of_file(path).value_or(""));
  Holder holder;
  try {
    fields.at("host").get_to(holder.host);
    fields.at("pid").get_to(holder.pid);
    fields.at("started").get_to(holder.started);
    fields.at("command").get_to(holder.command);
    fields.at("process_start").get_to(holder.process_start);
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return holder;
}

[[noreturn]] void fail_held(const std::filesystem::path& path, const Holder& holder) {
  if (holder.host.empty())
    fail<InputError>(
        "{}: another run is using this folder, but its lock file does not name it; if no run is "
        "alive, remove the file",
        path.string());
  fail<InputError>(
      "{}: held by process {} on host {} since {} ({}); wait for it or end it. If it is surely "
      "dead, remove the file",
      path.string(), holder.pid, holder.host, holder.started, holder.command);
}

bool surely_dead(const Holder& holder) {
  return !holder.host.empty() && holder.host == host_name() &&
         process_start(holder.pid) != holder.process_start;
}

bool same_file(int descriptor, const std::filesystem::path& path) {
  struct stat opened, named;
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

bool is_regular_file(int descriptor) {
  struct stat status;
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

bool flock_missing(int error) {
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder, Method method) : path_(folder / ".lock") {
  // Further rounds are needed when a holder removes the file meanwhile, or when a dead holder left
  // it.
  constexpr int rounds = 10;
  for (int round = 0; round < rounds; ++round)
    if (try_acquire(method)) return;
  fail<SystemError>(
      "{}: the lock file keeps changing, as another process competes for it; run the command again",
      path_.string());
}

bool RunLock::try_acquire(Method method) {
  // The file is written over, so it must be the one in this folder, and a link is not followed.
  constexpr int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int descriptor = ::open(path_.c_str(), flags | O_CREAT | O_EXCL, 0666);
  const bool made = descriptor >= 0;
  if (!made && errno == EEXIST) {
    descriptor = ::open(path_.c_str(), flags);
    if (descriptor < 0 && errno == ENOENT) return false;  // its holder has just removed it
    if (descriptor < 0 && errno == ELOOP)
      fail<InputError>("{}: a symbolic link is in place of the lock file; remove it",
                       path_.string());
    if (descriptor >= 0 && !is_regular_file(descriptor)) {
      ::close(descriptor);
      fail<InputError>("{}: a pipe or device is in place of the lock file; remove it",
                       path_.string());
    }
  }
  if (descriptor < 0)
    fail<InputError>("{}: the lock file cannot be made: {}; choose another folder", path_.string(),
                     errno_text(errno));

  const bool locked = method == Method::automatic && ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  const int error = method == Method::automatic ? errno : EOPNOTSUPP;
  const bool held_by_existence = !locked && flock_missing(error) && made;
  if ((locked && same_file(descriptor, path_)) || held_by_existence) {
    const std::string text = to_text(this_process());
    if (::ftruncate(descriptor, 0) != 0 ||
        ::pwrite(descriptor, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      const int write_error = errno;
      ::unlink(path_.c_str());
      ::close(descriptor);
      fail<SystemError>("{}: the lock file cannot be written: {}", path_.string(),
                        errno_text(write_error));
    }
    descriptor_ = descriptor;
    return true;
  }
  ::close(descriptor);
  if (locked) return false;  // the file was removed between open and flock
  const Holder holder = holder_of(path_);
  if (!flock_missing(error) && error != EWOULDBLOCK)
    fail<SystemError>("{}: cannot be locked: {}", path_.string(), errno_text(error));
  if (error == EWOULDBLOCK || !surely_dead(holder)) fail_held(path_, holder);
  ::unlink(path_.c_str());
  return false;
}

RunLock::~RunLock() {
  // The file is removed while still locked. So no process can lock a file that is no longer the
  // folder's lock.
  if (same_file(descriptor_, path_)) ::unlink(path_.c_str());
  ::close(descriptor_);
}

std::optional<RunHolder> run_holder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / ".lock";
  std::error_code unreachable;
  if (!std::filesystem::exists(path, unreachable)) return std::nullopt;
  const Holder holder = holder_of(path);
  return RunHolder{holder.host, holder.started, holder.command, holder.pid, surely_dead(holder)};
}

}  // namespace pecia::io
