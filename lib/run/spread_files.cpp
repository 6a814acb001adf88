// SPDX-License-Identifier: Apache-2.0
#include "lib/run/spread_files.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"

namespace pecia::run {
namespace {

struct NamedFile {
  std::string path;
  int64_t bytes = 0;

  template <typename A>
  void visit(A& archive) {
    archive(path), archive(bytes);
  }
};

struct NamedFiles {
  std::vector<NamedFile> all;

  template <typename A>
  void visit(A& archive) {
    visit_all(archive, all);
  }
};

/// Rank 0's files with their sizes, on all ranks.
std::vector<NamedFile> agreed(comm::Communicator& world,
                              const std::vector<std::filesystem::path>& files) {
  NamedFiles named;
  comm::together(world, [&] {
    if (world.rank() != 0) return;
    for (const auto& file : files)
      named.all.push_back({file.string(), io::File::open_input(file).size()});
  });
  return comm::of_first(world, std::move(named)).all;
}

}  // namespace

Hosts::Hosts(comm::Communicator& all)
    : world(all),
      ranks(all.split_by_host()),
      firsts(all.split(ranks->rank() == 0 ? 0 : 1, all.rank())) {}

Hosts::Hosts(comm::Communicator& all, int host)
    : world(all),
      ranks(all.split(host, all.rank())),
      firsts(all.split(ranks->rank() == 0 ? 0 : 1, all.rank())) {}

std::vector<int64_t> Hosts::of_each(int64_t mine) const {
  std::vector<int64_t> given;
  if (is_first()) given.push_back(mine);
  std::vector<int64_t> all;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(given)))) {
    if (bytes.empty()) continue;
    int64_t value = 0;
    Reader reader(bytes);
    reader(value);
    all.push_back(value);
  }
  return all;
}

SpreadFiles::SpreadFiles(const Hosts& hosts, std::vector<std::filesystem::path> files,
                         int64_t piece_bytes)
    : hosts_(hosts) {
  PECIA_CHECK(piece_bytes > 0, "pieces of {} bytes", piece_bytes);
  const std::vector<NamedFile> named = agreed(hosts.world, files);
  int64_t total = 0;
  for (const NamedFile& file : named) total += file.bytes;
  comm::together(hosts.world, [&] {
    const int64_t room = cluster::memory_facts().available_bytes;
    if (hosts.is_first() && total > room)
      fail<InputError>(
          "the weights' files have {} bytes, and {} are available on a host: use model.load: "
          "mapped, which reads what is used",
          total, room);
  });
  for (const NamedFile& file : named) spread(file.path, file.bytes, piece_bytes);
}

void SpreadFiles::spread(const std::filesystem::path& path, int64_t bytes, int64_t piece_bytes) {
  comm::Communicator& world = hosts_.world;
  comm::together(world, [&] {
    if (hosts_.is_first()) memory_.emplace_back(bytes);
  });

  // A piece that cannot be read or kept travels as an empty one, so that no host waits for it.
  std::exception_ptr error;
  if (hosts_.is_first()) {
    comm::Communicator& firsts = *hosts_.firsts;
    std::optional<io::File> file;
    // All hosts begin to read their next pieces while earlier ones of others travel.
    const int64_t stride = piece_bytes * firsts.size();
    const int64_t ahead =
        (firsts.rank() - next_piece_ % firsts.size() + firsts.size()) % firsts.size();
    try {
      if (ahead * piece_bytes < bytes) {
        file = io::File::open_input(path);
        file->prefetch(ahead * piece_bytes, piece_bytes);
      }
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    for (int64_t begin = 0; begin < bytes; begin += piece_bytes, ++next_piece_) {
      const int64_t count = std::min(piece_bytes, bytes - begin);
      const int reader = static_cast<int>(next_piece_ % firsts.size());
      std::vector<std::byte> piece;
      try {
        if (firsts.rank() == reader && !error) {
          piece.resize(count);
          file.value().read_at(begin, piece);
          file->prefetch(begin + stride, piece_bytes);
          read_bytes_ += count;
        }
      } catch (const std::exception&) {
        error = std::current_exception();
        piece.clear();
      }
      firsts.broadcast(piece, reader);
      try {
        if (std::ssize(piece) == count) memory_.back().write_at(begin, piece);
      } catch (const std::exception&) {
        error = std::current_exception();
      }
    }
  }
  comm::together(world, [&] {
    if (error) std::rethrow_exception(error);
  });

  const std::string place = hosts_.is_first() ? memory_.back().path().string() : "";
  in_memory_[path] = comm::of_first(*hosts_.ranks, place);
}

std::filesystem::path SpreadFiles::in_memory(const std::filesystem::path& file) const {
  const auto found = in_memory_.find(file);
  if (found == in_memory_.end())
    fail<InputError>("{} is not among the files of rank 0: do all hosts see the same folder?",
                     file.string());
  return found->second;
}

void SpreadFiles::clear() const {
  for (const io::MemoryFile& memory : memory_) memory.clear();
}

}  // namespace pecia::run
