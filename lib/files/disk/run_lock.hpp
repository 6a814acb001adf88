// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Allows one run per output folder, by a lock file that names its holder.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace pecia::io {

/// Holds FOLDER/.lock until it is destroyed or the process dies. One rank of a job takes it. With
/// flock the kernel releases the lock. On file systems without flock, the existence of the file is
/// the lock; a file left by a dead process of the same host is taken over.
class RunLock {
 public:
  enum class Method {
    automatic,    ///< by flock if the file system has it, else by existence
    by_existence  ///< for file systems whose flock does not reach other hosts (Lustre's localflock)
  };

  /// Throws InputError naming the holder when another run has the folder, or when the lock file
  /// cannot be made. Does not wait.
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

/// The contents of a folder's lock file. The host is empty when the file cannot be read.
struct RunHolder {
  std::string host, started, command;
  int64_t pid = 0;
  bool dead = false;  ///< certain: it was a process of this host, and it has ended
};

/// The holder that the lock file of `folder` names; absent without a lock file. Takes no lock, so
/// it disturbs no run.
std::optional<RunHolder> run_holder(const std::filesystem::path& folder);

}  // namespace pecia::io
