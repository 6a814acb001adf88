// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lib/base/core/error.hpp"
#include "lib/work/job/job.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::job {
namespace {

namespace fs = std::filesystem;

/// A folder of its own with a job file in it, removed at the end.
class JobFiles : public testing::Test {
 protected:
  JobFiles() { fs::create_directory(folder_ / "prompts"); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  fs::path write_job(const std::string& input) {
    write("job.yaml", "model: {path: ../models/tiny}\ninput: " + input + "\noutput: runs/a\n");
    return folder_ / "job.yaml";
  }
  std::string refusal(const fs::path& path) {
    try {
      load_job(path);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  test::TempFolder own_{"pecia [job] "};
  fs::path folder_ = own_.path();
};

TEST_F(JobFiles, ResolveRelativePathsAgainstTheirFolder) {
  write("prompts/a.h5", "");
  const Job job = load_job(write_job("prompts/a.h5"), {"output=b", "topology=hosts"});
  EXPECT_EQ(job.model.path, folder_.parent_path() / "models/tiny");
  EXPECT_EQ(job.output, folder_ / "b");
  EXPECT_EQ(job.topology, folder_ / "hosts");
  EXPECT_EQ(job.input, std::vector<fs::path>{folder_ / "prompts/a.h5"});
}

TEST_F(JobFiles, ResolveTheTunedFileOfSparseAttention) {
  const fs::path job_file = write_job("prompts/a.h5");
  const auto file = [&](const std::string& drop) {
    return read_job(job_file, {"attention.drop=" + drop}).attention.drop.value().file;
  };
  EXPECT_EQ(file("{file: ../tuned.json}"), folder_.parent_path() / "tuned.json");
  EXPECT_EQ(file("{file: /tuned.json}"), "/tuned.json");
  EXPECT_EQ(file("0.5"), "");
}

TEST_F(JobFiles, KeepAbsolutePaths) {
  write("prompts/a.h5", "");
  const Job job = load_job(write_job("prompts/a.h5"), {"model.path=/m"});
  EXPECT_EQ(job.model.path, "/m");
}

TEST_F(JobFiles, ExpandPatternsSortedInTheListsOrder) {
  for (const char* name : {"prompts/c.h5", "prompts/a.h5", "prompts/b.h5", "z.h5", "b[1].h5"})
    write(name, "");
  const Job job = load_job(write_job("[z.h5, 'prompts/[ab]*.h5', 'b[1].h5']"));
  EXPECT_EQ(job.input, (std::vector<fs::path>{folder_ / "z.h5", folder_ / "prompts/a.h5",
                                              folder_ / "prompts/b.h5", folder_ / "b[1].h5"}));
}

TEST_F(JobFiles, RefuseAPatternWithoutFilesAndAFileNamedTwice) {
  write("prompts/a.h5", "");
  EXPECT_NE(refusal(write_job("prompts/*.hdf5")).find("input prompts/*.hdf5 matches no file"),
            std::string::npos);
  EXPECT_NE(refusal(write_job("[prompts/*.h5, prompts/a.h5]")).find("a.h5 twice"),
            std::string::npos);
}

TEST_F(JobFiles, RefuseWhatIsNoJobFile) {
  EXPECT_NE(refusal(folder_ / "absent.yaml").find("No such file"), std::string::npos);
  EXPECT_NE(refusal(folder_).find("a folder"), std::string::npos);
  write("large.yaml", std::string(1'000'001, '#'));
  EXPECT_NE(refusal(folder_ / "large.yaml").find("larger than 1000000 bytes"), std::string::npos);
  write("full.yaml", std::string(1'000'000, '#'));
  EXPECT_NE(refusal(folder_ / "full.yaml").find("model.path is missing"), std::string::npos);
}

}  // namespace
}  // namespace pecia::job
