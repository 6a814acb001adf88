// SPDX-License-Identifier: Apache-2.0
/// Random damage to files that others made, read in this process: what a reader says of each is an
/// InputError or nothing, soon, and within a memory that small files have no claim to exceed.
///
/// PECIA_FUZZ_CASES says how many cases each reader gets. Damage depends on reader and number
/// alone; a failing file is kept, and once understood goes to tests/bad_input/found as READER-WHAT.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"
#include "tests/bad_input/parsers.hpp"
#include "tests/bad_input/trial.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

namespace fs = std::filesystem;

/// A sanitizer keeps books on memory that was asked for and never touched; its own limit of one
/// allocation stands instead.
constexpr Limits file_limits = {.memory_bytes =
                                    PECIA_ADDRESS_LIMIT > 0 ? Limits{}.memory_bytes : INT64_MAX};

int64_t num_cases() {
  const char* text = std::getenv("PECIA_FUZZ_CASES");
  return text == nullptr ? 300 : std::atoll(text);
}

void write_file(const fs::path& path, const std::string& bytes) {
  // A new file each time: HDF5 knows by the inode what it has open.
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

class EveryReader : public testing::TestWithParam<Parser> {};

TEST_P(EveryReader, TakesTheUndamaged) {
  const TempFolder folder;
  const std::vector<std::string> seeds = GetParam().seeds(folder.path());
  const Outcome outcome =
      try_all(static_cast<int64_t>(seeds.size()), file_limits, [&](int64_t number) {
        write_file(folder / GetParam().file_name, seeds[number]);
        GetParam().read(folder / GetParam().file_name);
      });
  EXPECT_EQ(outcome.accepted, static_cast<int64_t>(seeds.size()));
}

TEST_P(EveryReader, SurvivesDamage) {
  const TempFolder folder;
  const Parser& parser = GetParam();
  const std::vector<std::string> seeds = parser.seeds(folder.path());
  const auto file_of = [&](int64_t number) {
    const std::string& seed = seeds[number % seeds.size()];
    const size_t head = parser.head(seed);
    const uint64_t chance = mix(mix(0, parser.name), static_cast<uint64_t>(number));
    return damaged(seed.substr(0, head), parser.damage, chance) + seed.substr(head);
  };
  const Outcome outcome = try_all(num_cases(), file_limits, [&](int64_t number) {
    write_file(folder / parser.file_name, file_of(number));
    parser.read(folder / parser.file_name);
  });
  for (const Failure& failure : outcome.failures) {
    const fs::path kept =
        fs::temp_directory_path() / fmt::format("{}-{}", parser.name, failure.number);
    write_file(kept, file_of(failure.number));
    ADD_FAILURE() << kept.string() << " " << failure.what;
  }
  // Damage that is always noticed, or never, would mean that too much or nothing was damaged.
  EXPECT_GT(outcome.accepted, 0);
  EXPECT_GT(outcome.refused, num_cases() / 10);
}

TEST_P(EveryReader, SurvivesWhatWasFoundBefore) {
  const TempFolder folder;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(PECIA_FOUND))
    if (entry.path().filename().string().starts_with(GetParam().name))
      found.push_back(entry.path());
  const Outcome outcome =
      try_all(static_cast<int64_t>(found.size()), file_limits, [&](int64_t number) {
        fs::copy_file(found[number], folder / GetParam().file_name,
                      fs::copy_options::overwrite_existing);
        GetParam().read(folder / GetParam().file_name);
      });
  for (const Failure& failure : outcome.failures)
    ADD_FAILURE() << found[failure.number].string() << " " << failure.what;
}

INSTANTIATE_TEST_SUITE_P(Of, EveryReader, testing::ValuesIn(parsers()),
                         [](const auto& chosen) { return std::string(chosen.param.name); });

TEST(Trial, NamesTheCaseThatFailsAndHow) {
  const Limits limits = {.processor_s = 1};
  const Outcome outcome = try_all(500, limits, [](int64_t number) {
    if (number == 3) ::raise(SIGSEGV);
    if (number == 250)
      for (std::atomic<int> turns = 0;; ++turns) continue;
    if (number == 260) throw std::logic_error("odd");
    if (number == 262) ::_exit(2);
    if (number == 301) std::vector<char>(100 << 20, 'a').resize(1);
    if (number % 2 == 0) throw InputError("even");
  });
  ASSERT_EQ(outcome.failures.size(), 4u);
  const std::pair<int64_t, const char*> expected[] = {{3, "killed by signal 11"},
                                                      {250, "hangs"},
                                                      {260, "throws odd, which is no InputError"},
                                                      {301, "takes 1"}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcome.failures[i].number, expected[i].first);
    EXPECT_TRUE(outcome.failures[i].what.starts_with(expected[i].second))
        << outcome.failures[i].what;
  }
  EXPECT_EQ(outcome.accepted, 248);
  EXPECT_EQ(outcome.refused, 248);
}

}  // namespace
}  // namespace pecia::test
