// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/model/config/fingerprint.hpp"
#include "tests/support/safetensors_writer.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::model {
namespace {

namespace fs = std::filesystem;
using Parts = std::set<std::string>;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Adds one to the byte at `offset`.
void change_byte(const fs::path& path, int64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte + 1));
  ASSERT_TRUE(file.good());
}

/// A tensor of so many values, in which no two blocks are alike.
test::NamedTensor tensor(const std::string& name, int64_t values) {
  std::vector<float> data(values);
  for (int64_t i = 0; i < values; ++i) data[i] = static_cast<float>(i);
  return test::float_tensor(name, DType::fp32, {values}, data);
}

/// A model's folder of two files; one is too large to be read whole.
class FingerprintOf : public testing::Test {
 protected:
  FingerprintOf() {
    write_text(folder_ / "config.json", "{}");
    write_text(folder_ / "generation_config.json", "{\"eos_token_id\": 1}");
    write_text(folder_ / "tokenizer.json", "{\"model\": 1}");
    test::write_safetensors(first(), {tensor("one", 1), tensor("norm", 64), tensor("a", 5000)});
    test::write_safetensors(second(), {tensor("large", 1 << 20), tensor("b", 3 << 20)});
    test::write_safetensors_index(folder_.path(), {{"one", "1.safetensors"},
                                                   {"norm", "1.safetensors"},
                                                   {"a", "1.safetensors"},
                                                   {"large", "2.safetensors"},
                                                   {"b", "2.safetensors"}});
    before_ = fingerprint_of(folder_.path());
  }
  fs::path first() const { return folder_ / "1.safetensors"; }
  fs::path second() const { return folder_ / "2.safetensors"; }

  /// The parts that differ from those at the beginning.
  Parts changed() const {
    const Fingerprint now = fingerprint_of(folder_.path());
    Parts names;
    for (size_t part = 0; part < now.parts.size(); ++part)
      if (now.parts[part] != before_.parts[part]) names.insert(Fingerprint::part_names[part]);
    return names;
  }
  static int64_t bytes_of(const fs::path& path) {
    return static_cast<int64_t>(fs::file_size(path));
  }

  test::TempFolder folder_;
  Fingerprint before_;
};

TEST_F(FingerprintOf, IsThatOfACopy) {
  for (const std::string& part : before_.parts) EXPECT_EQ(part.size(), 64u);
  const test::TempFolder other;
  fs::copy(folder_.path(), other.path(), fs::copy_options::recursive);
  EXPECT_EQ(fingerprint_of(other.path()).parts, before_.parts);
}

TEST_F(FingerprintOf, SeesTheFirstAndTheLastByteOfEveryTensor) {
  const io::Checkpoint checkpoint(folder_.path());
  for (const fs::path& path : {first(), second()}) {
    int64_t end = bytes_of(path);
    std::vector<std::string> names = {"a", "norm", "one"};  // from the end of the file on
    if (path == second()) names = {"b", "large"};
    for (const std::string& name : names) {
      const TensorView view = checkpoint.tensor(name);
      const int64_t begin = end - view.elements() * 4;
      for (const int64_t offset : {begin, end - 1}) {
        change_byte(path, offset);
        EXPECT_EQ(changed(), Parts{"contents of the weights"}) << name << ", byte " << offset;
        for (int again = 0; again < 255; ++again) change_byte(path, offset);
      }
      end = begin;
    }
  }
  EXPECT_EQ(changed(), Parts{});
}

TEST_F(FingerprintOf, SeesWhatChangesInAllOfATensor) {
  // A stretch of 1 % of the large file, anywhere, meets a sample.
  const int64_t bytes = bytes_of(second()), stretch = bytes / 100;
  for (const int64_t begin : {bytes / 3, bytes / 2, bytes - 2 * stretch}) {
    std::fstream file(second(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(begin);
    file << std::string(stretch, '\x55');
    file.close();
    const std::string contents = fingerprint_of(folder_.path()).contents();
    EXPECT_NE(contents, before_.contents()) << begin;
    before_.parts.back() = contents;
  }
}

TEST_F(FingerprintOf, SeesAnyByteOfSmallModels) {
  fs::remove(folder_ / "model.safetensors.index.json");
  fs::rename(first(), folder_ / "model.safetensors");
  before_ = fingerprint_of(folder_.path());
  const int64_t bytes = bytes_of(folder_ / "model.safetensors");
  for (int64_t offset = bytes - 5000 * 4 - 260; offset < bytes; offset += 997) {
    change_byte(folder_ / "model.safetensors", offset);
    EXPECT_EQ(changed(), Parts{"contents of the weights"}) << offset;
    before_ = fingerprint_of(folder_.path());
  }
}

TEST_F(FingerprintOf, SeesOtherSmallFilesAndMissingOnes) {
  write_text(folder_ / "config.json", "{\"rope_theta\": 2}");
  EXPECT_EQ(changed(), Parts{"config.json"});
  write_text(folder_ / "config.json", "{}");
  fs::remove(folder_ / "generation_config.json");
  EXPECT_EQ(changed(), Parts{"generation_config.json"});
  EXPECT_EQ(fingerprint_of(folder_.path()).parts[1], "");
  write_text(folder_ / "tokenizer.json", "{}");
  EXPECT_EQ(changed(), (Parts{"generation_config.json", "tokenizer.json"}));
}

TEST_F(FingerprintOf, SeesAnotherSize) {
  test::write_safetensors(first(), {tensor("one", 1), tensor("norm", 64), tensor("a", 5001)});
  EXPECT_EQ(changed(), (Parts{"names and shapes of the weights", "contents of the weights"}));
}

TEST_F(FingerprintOf, RefusesWhatIsNoCheckpoint) {
  fs::resize_file(second(), bytes_of(second()) - 1);
  EXPECT_THROW(fingerprint_of(folder_.path()), InputError);
}

}  // namespace
}  // namespace pecia::model
