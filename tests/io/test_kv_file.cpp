// SPDX-License-Identifier: Apache-2.0
/// Files of keys and values: what is written comes back, and no damage goes unseen.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>

#include "lib/base/core/error.hpp"
#include "lib/files/kv/kv_save.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::test {
namespace {

using io::KvBlock;
using io::KvFileReader;
using io::KvFileShape;
using io::KvFileWriter;
using io::KvSide;

constexpr int64_t stamp = 77;

/// A byte for each place, which no other place near it has.
std::byte byte_at(const KvBlock& at, size_t index) {
  const auto value = 131 * static_cast<size_t>(at.layer) + 17 * static_cast<size_t>(at.head) +
                     7 * static_cast<size_t>(at.block) + (at.side == KvSide::keys ? 0 : 89) +
                     index % 251;
  return static_cast<std::byte>(value % 256);
}

struct Content {
  std::vector<std::byte> vectors;
  std::vector<float> scales;
};

Content content(const KvFileShape& shape, const KvBlock& at) {
  const int64_t tokens = shape.tokens_of_block(at.block);
  Content made{std::vector<std::byte>(tokens * shape.vector_bytes()),
               std::vector<float>(shape.has_scales() ? tokens : 0)};
  for (size_t i = 0; i < made.vectors.size(); ++i) made.vectors[i] = byte_at(at, i);
  for (size_t i = 0; i < made.scales.size(); ++i)
    made.scales[i] = static_cast<float>(i) + static_cast<float>(at.layer);
  return made;
}

void for_each_block(const KvFileShape& shape, const std::function<void(const KvBlock&)>& visit) {
  for (const KvSide side : shape.sides_stored())
    for (int64_t layer = 0; layer < shape.layers; ++layer)
      for (int64_t head = 0; head < shape.heads; ++head)
        for (int64_t block = 0; block < shape.blocks(); ++block) visit({side, layer, head, block});
}

void write(const std::filesystem::path& path, const KvFileShape& shape) {
  KvFileWriter writer(path, shape, stamp, "a request", {{0, shape.tokens, 1}});
  for_each_block(shape, [&](const KvBlock& at) {
    const Content made = content(shape, at);
    writer.write(at, made.vectors, made.scales);
  });
  writer.finish();
}

/// Whether every block is as it was written; throws where the file is found damaged.
bool same(const std::filesystem::path& path, const KvFileShape& shape) {
  const KvFileReader reader(path, shape, stamp);
  bool equal = true;
  for_each_block(shape, [&](const KvBlock& at) {
    const Content made = content(shape, at);
    Content found{std::vector<std::byte>(made.vectors.size()),
                  std::vector<float>(made.scales.size())};
    reader.read(at, found.vectors, found.scales);
    equal = equal && found.vectors == made.vectors && found.scales == made.scales;
  });
  return equal;
}

KvFileShape shape(int64_t tokens, DType dtype) {
  return {2, 3, tokens, 8, dtype};
}

TEST(KvFile, GivesBackWhatWasWritten) {
  const TempFolder folder;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16, DType::fp8})
    for (const int64_t tokens : {int64_t{0}, int64_t{1}, io::kv_block_tokens - 1,
                                 io::kv_block_tokens, 2 * io::kv_block_tokens + 5}) {
      SCOPED_TRACE(fmt::format("{} tokens of {}", tokens, name_of(dtype)));
      write(folder / "a.h5", shape(tokens, dtype));
      EXPECT_TRUE(same(folder / "a.h5", shape(tokens, dtype)));
      EXPECT_FALSE(std::filesystem::exists(folder / "a.h5.part"));
    }
}

/// Where values are the beginnings of keys. Half the bytes are in it, and none of its datasets is /v.
TEST(KvFile, HasKeysAloneWhereTheseHaveTheValues) {
  const TempFolder folder;
  for (const DType dtype : {DType::bf16, DType::fp8}) {
    const KvFileShape both = shape(1500, dtype);
    KvFileShape keys = both;
    keys.sides = 1;
    EXPECT_EQ(2 * keys.payload_bytes(), both.payload_bytes());
    write(folder / "a.h5", keys);
    EXPECT_TRUE(same(folder / "a.h5", keys));
    expect_error<InputError>([&] { const KvFileReader reader(folder / "a.h5", both, stamp); },
                             {"/v"});
    write(folder / "b.h5", both);
    expect_error<InputError>([&] { const KvFileReader reader(folder / "b.h5", keys, stamp); },
                             {"another shape"});
  }
}

TEST(KvFile, IsRefusedWhereItIsAnother) {
  const TempFolder folder;
  write(folder / "a.h5", shape(10, DType::bf16));
  const auto open = [&](const KvFileShape& as, int64_t with) {
    const KvFileReader reader(folder / "a.h5", as, with);
  };
  open(shape(10, DType::bf16), stamp);
  expect_error<InputError>([&] { open(shape(10, DType::bf16), stamp + 1); }, {"another save"});
  expect_error<InputError>([&] { open(shape(11, DType::bf16), stamp); }, {"another shape"});
  expect_error<InputError>([&] { open(shape(10, DType::fp32), stamp); }, {"another shape"});
  expect_error<InputError>([&] { open(shape(10, DType::fp8), stamp); }, {"another shape"});
}

/// Every fourth byte, and every bit of a byte in turn.
TEST(KvFile, ShowsChangedBytesAndEveryCut) {
  const TempFolder folder;
  const KvFileShape of{1, 2, 5, 8, DType::fp8};
  write(folder / "a.h5", of);
  std::ifstream in(folder / "a.h5", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto damaged_is_seen = [&](const std::string& bytes) {
    std::ofstream(folder / "b.h5", std::ios::binary | std::ios::trunc) << bytes;
    try {
      return same(folder / "b.h5", of);  // a byte that nobody reads
    } catch (const Error&) {
      return true;
    }
  };
  for (size_t at = 0; at < whole.size(); at += 4) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << at / 4 % 8);
    ASSERT_TRUE(damaged_is_seen(bytes)) << "byte " << at << " of " << whole.size();
  }
  for (size_t size = 0; size < whole.size(); size += 251) {
    std::ofstream(folder / "b.h5", std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_THROW(same(folder / "b.h5", of), Error) << size << " bytes of " << whole.size();
  }
}

TEST(KvFile, IsItsOwnersAndFollowsNoLink) {
  const TempFolder folder;
  folder.write("victim", "precious");
  std::filesystem::create_symlink(folder / "victim", folder / "a.h5.part");
  write(folder / "a.h5", shape(5, DType::bf16));
  EXPECT_EQ(text_of(folder / "victim"), "precious");
  EXPECT_TRUE(same(folder / "a.h5", shape(5, DType::bf16)));
  io::write_kv_save(folder.path(), {});
  for (const char* name : {"a.h5", "save.json"})
    EXPECT_EQ(std::filesystem::status(folder / name).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write)
        << name;
}

TEST(KvFile, LeavesNothingWhenItIsNotFinished) {
  const TempFolder folder;
  {
    KvFileWriter writer(folder / "a.h5", shape(5, DType::fp32), stamp, "", {{0, 5, 1}});
    EXPECT_THROW(writer.finish(), InvalidArgument) << "blocks are missing";
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(KvFile, SaysWhatADiskLacks) {
  const TempFolder folder;
  // A limit on the size of files looks like a full disk, once its signal is ignored.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 1 << 20;
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_NO_THROW(write(folder / "small.h5", shape(5, DType::fp32)));
  expect_error<SystemError>([&] { write(folder / "large.h5", shape(100'000, DType::fp32)); },
                            {"large.h5.part", "bytes, "});
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, before);
  EXPECT_FALSE(std::filesystem::exists(folder / "large.h5.part"));
}

io::KvSave some_save() {
  return {.identity = "{\"model\": 1}",
          .request_id = "book \xff",  // any bytes
          .row = 3,
          .tokens = 12,
          .tokens_sha256 = "abc",
          .layers = 2,
          .kv_heads = 4,
          .head_dim = 8,
          .dtype = DType::bf16,
          .bytes = 99,
          .parts = {{"0-0.h5", 5, 0, 2, {{0, 6, 1}, {6, 3, 2}}}, {"0-1.h5", 6, 2, 4, {}}}};
}

TEST(KvSave, GivesBackItsDescription) {
  const TempFolder folder;
  EXPECT_FALSE(io::read_kv_save(folder.path()).has_value());
  EXPECT_FALSE(io::read_kv_save(folder / "nowhere").has_value());
  const io::KvSave save = some_save();
  io::write_kv_save(folder.path(), save);
  const auto found = io::read_kv_save(folder.path());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->identity, save.identity);
  EXPECT_EQ(found->row, save.row);
  EXPECT_EQ(found->tokens, save.tokens);
  EXPECT_EQ(found->tokens_sha256, save.tokens_sha256);
  EXPECT_EQ(found->dtype, save.dtype);
  ASSERT_EQ(found->parts.size(), 2u);
  EXPECT_EQ(found->parts[0].positions, save.parts[0].positions);
  EXPECT_EQ(found->parts[0].tokens(), 9);
  EXPECT_EQ(found->parts[1].file, "0-1.h5");
  EXPECT_EQ(found->parts[1].stamp, 6);
  EXPECT_EQ(found->parts[1].head_begin, 2);
}

TEST(KvSave, ShowsEveryChangedByteOfItsDescription) {
  const TempFolder folder;
  io::write_kv_save(folder.path(), some_save());
  std::ifstream in(folder / "save.json", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t at = 0; at + 1 < whole.size(); ++at) {  // the last one is the line's end
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x01);
    std::ofstream(folder / "save.json", std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_THROW(io::read_kv_save(folder.path()), InputError) << bytes.substr(at, 20);
  }
}

TEST(KvSave, IsRemovedWithAllItsFiles) {
  const TempFolder folder;
  const auto of = folder / "request";
  std::filesystem::create_directory(of);
  for (const char* name : {"0-0.h5", "0-1.h5", "left.h5.part"}) std::ofstream(of / name) << "x";
  io::write_kv_save(of, some_save());
  io::remove_unnamed_files(of, some_save());
  EXPECT_TRUE(std::filesystem::exists(of / "0-1.h5"));
  EXPECT_FALSE(std::filesystem::exists(of / "left.h5.part"));
  EXPECT_TRUE(io::read_kv_save(of).has_value());
  io::remove_kv_save(of);
  EXPECT_FALSE(std::filesystem::exists(of));
}

TEST(KvSave, ThatIsALinkIsNotRemovedBehindIt) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "other");
  io::write_kv_save(folder / "other", some_save());
  std::filesystem::create_directory_symlink(folder / "other", folder / "link");
  io::remove_kv_save(folder / "link");
  EXPECT_FALSE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(io::read_kv_save(folder / "other").has_value());
}

}  // namespace
}  // namespace pecia::test
