// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One run per output folder: a lock file that names its holder.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace pecia::io {

/// Holds FOLDER/.lock from construction to destruction or the process's death. One rank of a job
/// takes it. Where the file system has flock, the kernel releases it; where it has not, the file's
/// existence is the lock, and one left by a dead process of the same host is taken over.
class RunLock {
 public:
  enum class Method {
    automatic,    ///< flock if the file system has it, else existence
    by_existence  ///< for file systems whose flock does not reach other hosts (Lustre's localflock)
  };

  /// InputError naming the holder when another run has the folder, or when no lock file can be made
  /// there. Does not wait.
  explicit RunLock(const std::filesystem::path& folder, Method method = Method::automatic);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  bool try_acquire(Method method);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// What a folder's lock file says. An empty host: nothing that can be read.
struct RunHolder {
  std::string host, started, command;
  int64_t pid = 0;
  bool dead = false;  ///< surely: it was a process of this host, which has ended
};

/// Who holds `folder`, as far as its lock file tells; absent without one. Takes no lock, so it is
/// in nobody's way.
std::optional<RunHolder> run_holder(const std::filesystem::path& folder);

}  // namespace pecia::io
