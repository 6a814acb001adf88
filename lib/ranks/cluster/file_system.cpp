// SPDX-License-Identifier: Apache-2.0
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/machine.hpp"

namespace pecia::cluster {
namespace {

constexpr std::array<std::string_view, 12> network_types{"nfs",    "nfs4",  "lustre", "gpfs",
                                                         "beegfs", "ceph",  "cifs",   "smb3",
                                                         "panfs",  "pvfs2", "wekafs", "9p"};

std::filesystem::path nearest_existing(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error).lexically_normal();
  while (!std::filesystem::exists(path, error) && path.has_relative_path())
    path = path.parent_path();
  return std::filesystem::canonical(path);
}

/// Whether `path` lies in or below `mount`.
bool below(const std::filesystem::path& path, const std::filesystem::path& mount) {
  return std::mismatch(mount.begin(), mount.end(), path.begin(), path.end()).first == mount.end();
}

/// The type of the longest mount point above `path`. If several are equal, the last one counts,
/// because later mounts hide earlier ones.
std::string mounted_type(const std::filesystem::path& path) {
  std::ifstream mounts("/proc/self/mounts");
  std::string type = "?";
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string device, mount, mount_type;
    words >> device >> mount >> mount_type;
    const bool holds = mount == "/" || below(path, mount);
    if (holds && mount.size() >= longest) longest = mount.size(), type = mount_type;
  }
  return type;
}

}  // namespace

FileSystemFacts file_system_facts(const std::filesystem::path& folder) {
  FileSystemFacts facts;
  facts.path = nearest_existing(folder);
  struct statvfs status {};
  if (statvfs(facts.path.c_str(), &status) != 0)
    fail<SystemError>("{}: statvfs: {}", facts.path.string(), std::strerror(errno));
  facts.type = mounted_type(facts.path);
  const std::string_view kind = std::string_view(facts.type).starts_with("fuse.")
                                    ? std::string_view(facts.type).substr(5)
                                    : std::string_view(facts.type);
  facts.network =
      std::find(network_types.begin(), network_types.end(), kind) != network_types.end();
  facts.writable = access(facts.path.c_str(), W_OK) == 0;
  const auto block = static_cast<int64_t>(status.f_frsize);
  facts.total_bytes = static_cast<int64_t>(status.f_blocks) * block;
  facts.free_bytes = static_cast<int64_t>(status.f_bavail) * block;
  // Some file systems make inodes on demand and report 0 of 0.
  if (status.f_files > 0) facts.free_files = static_cast<int64_t>(status.f_favail);
  return facts;
}

WriteFacts try_writing(const std::filesystem::path& folder) {
  WriteFacts facts;
  std::string path = (folder / ".pecia-doctor-XXXXXX").string();
  const int file = mkstemp(path.data());
  if (file < 0) {
    facts.problem = std::strerror(errno);
    return facts;
  }
  constexpr int64_t bytes = int64_t{64} << 20;
  struct stat status {};
  if (flock(file, LOCK_EX | LOCK_NB) != 0) facts.no_locks = std::strerror(errno);
  if (ftruncate(file, bytes) != 0 || fstat(file, &status) != 0)
    facts.problem = std::strerror(errno);
  else
    facts.sparse = int64_t{status.st_blocks} * 512 < bytes;
  unlink(path.c_str());
  close(file);
  return facts;
}

}  // namespace pecia::cluster
