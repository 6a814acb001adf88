// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/mapped_file.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/run/spread_files.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::run {
namespace {

namespace fs = std::filesystem;

constexpr int64_t piece_bytes = 1000;

std::unique_ptr<comm::Communicator> make_world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

std::string content(int64_t bytes, int seed) {
  std::string text(bytes, '\0');
  for (int64_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251 + seed);
  return text;
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Rank 0's folder, which all ranks see.
fs::path shared_folder(comm::Communicator& world, const test::TempFolder& own) {
  return comm::of_first(world, own.path().string());
}

/// Simulated hosts of one rank, of two ranks, and one host.
class HostsOf : public testing::TestWithParam<int> {};

TEST_P(HostsOf, GetAllFilesAndReadEachByteOnce) {
  const auto world = make_world();
  const test::TempFolder own;
  const fs::path folder = shared_folder(*world, own);
  // Empty, one byte, at and around a piece, and many pieces with a rest.
  const std::vector<int64_t> sizes = {0, 1, piece_bytes - 1, piece_bytes, piece_bytes + 1, 12345};
  std::vector<fs::path> files;
  for (size_t i = 0; i < sizes.size(); ++i) {
    files.push_back(folder / std::to_string(i));
    if (world->rank() == 0) write(files.back(), content(sizes[i], static_cast<int>(i)));
  }
  world->barrier();
  const Hosts hosts(*world, world->rank() / GetParam());
  const SpreadFiles spread(hosts, world->rank() == 0 ? files : std::vector<fs::path>(),
                           piece_bytes);
  for (size_t i = 0; i < files.size(); ++i) {
    const io::MappedFile mapped(spread.in_memory(files[i]));
    const std::string expected = content(sizes[i], static_cast<int>(i));
    ASSERT_EQ(mapped.bytes().size(), expected.size());
    EXPECT_TRUE(std::ranges::equal(mapped.bytes(), std::as_bytes(std::span(expected))))
        << "file " << i;
  }
  EXPECT_THROW(spread.in_memory(folder / "another"), InputError);

  const std::vector<int64_t> read = hosts.of_each(spread.read_bytes());
  const int num_hosts = (world->size() + GetParam() - 1) / GetParam();
  ASSERT_EQ(std::ssize(read), num_hosts);
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  EXPECT_EQ(std::accumulate(read.begin(), read.end(), int64_t{0}), total);
  EXPECT_LE(*std::ranges::max_element(read) - *std::ranges::min_element(read), 3 * piece_bytes)
      << "the hosts share the reading";
  world->barrier();  // memory lives as long as the first rank's object
}

INSTANTIATE_TEST_SUITE_P(RanksPerHost, HostsOf, testing::Values(1, 2, 8));

TEST(SpreadFiles, FailTogetherWhereAHostCannotRead) {
  const auto world = make_world();
  const test::TempFolder own;
  const fs::path folder = shared_folder(*world, own);
  const Hosts hosts(*world, world->rank());
  EXPECT_THROW(SpreadFiles(hosts, {folder / "missing"}, piece_bytes), InputError);

  if (world->size() == 1) return;
  // Only rank 0 has the file, which is relative to a folder of each rank.
  const fs::path before = fs::current_path();
  fs::current_path(own.path());
  if (world->rank() == 0) write("here", content(3 * piece_bytes, 0));
  world->barrier();
  try {
    SpreadFiles(hosts, {"here"}, piece_bytes);
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("here"), std::string::npos) << error.what();
  }
  fs::current_path(before);
  world->barrier();
}

}  // namespace
}  // namespace pecia::run
