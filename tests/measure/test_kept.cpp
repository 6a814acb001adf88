// SPDX-License-Identifier: Apache-2.0
/// What is kept in the user's cache: descriptions of machines, and how far off predictions were.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "lib/settle/measure/deviations.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::measure {
namespace {

class Kept : public testing::Test {
 protected:
  Kept() {
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    unsetenv("PECIA_NO_CACHE");
  }
  ~Kept() override { unsetenv("PECIA_NO_CACHE"); }

  test::TempFolder folder_{"kept"};
};

cluster_files::Cluster some_cluster() {
  return cluster_files::parse_cluster(*cluster_files::preset_text("h100-gtt"), "preset");
}

TEST_F(Kept, DescriptionsAreThoseOfTheirRanks) {
  EXPECT_FALSE(kept_cluster("two ranks"));
  keep_cluster("two ranks", some_cluster());
  EXPECT_EQ(kept_cluster("two ranks"), some_cluster());
  EXPECT_FALSE(kept_cluster("four ranks"));
  for (const auto& file : std::filesystem::directory_iterator(folder_.path() / "pecia"))
    std::ofstream(file.path(), std::ios::app) << "damage: yes\n";
  EXPECT_FALSE(kept_cluster("two ranks")) << "a damaged file is measured again";
}

TEST_F(Kept, NothingIsKeptWhereTheUserSaysSo) {
  setenv("PECIA_NO_CACHE", "1", 1);
  keep_cluster("two ranks", some_cluster());
  EXPECT_FALSE(deviations_path());
  unsetenv("PECIA_NO_CACHE");
  EXPECT_FALSE(kept_cluster("two ranks"));
}

TEST_F(Kept, OnlyTheLastDeviationsAreKept) {
  const auto path = *deviations_path();
  EXPECT_EQ(deviations_text(read_deviations(path)), "");
  for (size_t run = 0; run < most_deviations + 3; ++run)
    add_deviation(path, {static_cast<double>(run), "a model", "rates", -0.04, 0.02, {}});
  std::ofstream(path, std::ios::app) << "{\"began_unix_s\": 1\n";
  const auto found = read_deviations(path);
  ASSERT_EQ(found.size(), most_deviations);
  EXPECT_EQ(found.front().began_unix_s, 3);
  EXPECT_EQ(found.back().what, "a model");
  EXPECT_EQ(found.back().prefill, 0.02);
  EXPECT_FALSE(found.back().decode);
  EXPECT_EQ(deviations_text(found), "seconds off by 4.0 % in the median of 64 runs, prefill 2.0 %");
}

}  // namespace
}  // namespace pecia::measure
