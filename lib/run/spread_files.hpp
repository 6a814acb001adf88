// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Files that the hosts of a job read together, so that a file system serves each byte once.
///
/// A file is cut into pieces, which the hosts read in turn. The first rank of a host broadcasts its
/// pieces to the first ranks of the others, and each of them puts all pieces into memory that the
/// ranks of its host map. With 3 hosts and 7 pieces:
///
///     host 0 reads pieces 0 3 6     host 1 reads 1 4     host 2 reads 2 5     each gets all

#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "lib/files/disk/memory_file.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::run {

/// The ranks of a job by host.
struct Hosts {
  explicit Hosts(comm::Communicator& world);
  /// Hosts as the caller says, for tests: ranks of equal `host` share one.
  Hosts(comm::Communicator& world, int host);

  comm::Communicator& world;
  std::unique_ptr<comm::Communicator> ranks;   ///< of this rank's host
  std::unique_ptr<comm::Communicator> firsts;  ///< first ranks of all hosts; elsewhere of no use

  bool is_first() const { return ranks->rank() == 0; }
  /// What the first rank of each host gives, by host; on all ranks. Collective over the world.
  std::vector<int64_t> of_each(int64_t mine) const;
};

class SpreadFiles {
 public:
  static constexpr int64_t default_piece_bytes = 8 << 20;

  /// Reads the files that rank 0 names. Throws on all ranks together where one cannot be read.
  /// Collective over the hosts' world. `hosts` outlive this object.
  SpreadFiles(const Hosts& hosts, std::vector<std::filesystem::path> files,
              int64_t piece_bytes = default_piece_bytes);

  /// From where to map the content of `file`. Throws InputError if it is none of the files.
  std::filesystem::path in_memory(const std::filesystem::path& file) const;

  /// Bytes that this rank has read from the files.
  int64_t read_bytes() const { return read_bytes_; }

  /// Frees the memory. Maps of it must not be touched any more, on any rank of the host.
  void clear() const;

 private:
  void spread(const std::filesystem::path& file, int64_t bytes, int64_t piece_bytes);

  const Hosts& hosts_;
  std::vector<io::MemoryFile> memory_;  ///< on first ranks
  std::map<std::filesystem::path, std::filesystem::path> in_memory_;
  int64_t read_bytes_ = 0, next_piece_ = 0;
};

}  // namespace pecia::run
