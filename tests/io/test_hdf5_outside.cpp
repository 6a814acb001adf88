// SPDX-License-Identifier: Apache-2.0
/// A file is read by itself: what leads to other files, to pipes or to plugins is refused.

#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <functional>

#include "lib/base/core/error.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/kv/kv_file.hpp"
#include "lib/files/prompts/prompts.hpp"
#include "lib/files/results/journal.hpp"
#include "lib/files/results/results.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/shards.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

constexpr hsize_t count = 6;  // tokens of the shard
constexpr H5Z_filter_t unknown_filter = 32015;

class OutsideTest : public testing::Test {
 protected:
  OutsideTest() {
    test::ShardContent content;
    content.requests = {{"a", {{{5, 6, 7}}, {{}}, {{8}}}}, {"b", {{{1, 2}}}}};
    write_shard(shard(), content);
    test::Hdf5Editor(secret()).set("/tokens", std::vector<int32_t>(count, 42));
    ::chmod(secret().c_str(), 0600);
    PromptShard{shard()};
    test::Hdf5Editor(shard()).remove("/tokens");
  }

  fs::path shard() const { return folder_ / "a.h5"; }
  fs::path secret() const { return folder_ / "secret.h5"; }

  void edit(const std::function<void(hid_t)>& change) const {
    const Hdf5Id<H5Fclose> file(H5Fopen(shard().c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    ASSERT_TRUE(file.valid());
    change(file.get());
  }
  /// Makes /tokens with these properties.
  void make_tokens(const std::function<void(hid_t)>& set) const {
    edit([&](hid_t file) {
      const Hdf5Properties properties(H5Pcreate(H5P_DATASET_CREATE));
      set(properties.get());
      const Hdf5Space space(H5Screate_simple(1, &count, nullptr));
      const Hdf5Id<H5Dclose> made(H5Dcreate2(file, "/tokens", H5T_STD_I32LE, space.get(),
                                             H5P_DEFAULT, properties.get(), H5P_DEFAULT));
      ASSERT_TRUE(made.valid()) << hdf5_message();
    });
  }
  void expect_refused(const std::vector<std::string>& parts) const {
    test::expect_error<InputError>([&] { PromptShard{shard()}; }, parts);
  }

  test::TempFolder folder_;
};

TEST_F(OutsideTest, ExternalStorageIsRefused) {
  make_tokens([&](hid_t properties) {
    H5Pset_external(properties, secret().c_str(), 0, count * sizeof(int32_t));
  });
  expect_refused({"a.h5: /tokens has its data in another file", secret().string(), "h5repack"});
}

TEST_F(OutsideTest, ExternalStorageInAPipeIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  make_tokens([&](hid_t properties) {
    H5Pset_external(properties, (folder_ / "pipe").c_str(), 0, count * sizeof(int32_t));
  });
  expect_refused({"a.h5: /tokens has its data in another file", "pipe"});
}

TEST_F(OutsideTest, ExternalLinksAreRefused) {
  edit([&](hid_t file) {
    H5Lcreate_external(secret().c_str(), "/tokens", file, "/tokens", H5P_DEFAULT, H5P_DEFAULT);
  });
  expect_refused({"a.h5: /tokens is in another file", secret().string(), "h5copy"});
}

TEST_F(OutsideTest, SoftLinksMayLeadWithinTheFileAlone) {
  edit([&](hid_t file) {
    H5Lcreate_external(secret().c_str(), "/", file, "/out", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/out/tokens", file, "/tokens", H5P_DEFAULT, H5P_DEFAULT);
  });
  expect_refused({"a.h5: /tokens is in another file", secret().string()});
  test::Hdf5Editor(shard()).remove("/tokens");
  test::Hdf5Editor(shard()).set("/inner", std::vector<int32_t>{5, 6, 7, 8, 1, 2});
  edit([&](hid_t file) { H5Lcreate_soft("/inner", file, "/tokens", H5P_DEFAULT, H5P_DEFAULT); });
  EXPECT_NO_THROW(PromptShard{shard()});
}

TEST_F(OutsideTest, VirtualDatasetsAreRefused) {
  make_tokens([&](hid_t properties) {
    const Hdf5Space space(H5Screate_simple(1, &count, nullptr));
    H5Pset_virtual(properties, space.get(), secret().c_str(), "/tokens", space.get());
  });
  expect_refused({"a.h5: /tokens is a virtual dataset", "h5repack"});
}

TEST_F(OutsideTest, FiltersOfPluginsAreRefusedByNumber) {
  make_tokens([&](hid_t properties) {
    H5Pset_chunk(properties, 1, &count);
    H5Pset_filter(properties, unknown_filter, H5Z_FLAG_OPTIONAL, 0, nullptr);
  });
  expect_refused({"a.h5: /tokens is compressed with filter 32015", "plugin", "h5repack -f NONE"});
  unsigned plugins = 0;
  ASSERT_GE(H5PLget_loading_state(&plugins), 0);
  EXPECT_EQ(plugins & H5PL_FILTER_PLUGIN, 0u) << "links of a group may have a filter, too";
}

TEST_F(OutsideTest, FiltersOfHdf5ItselfStay) {
  make_tokens([&](hid_t properties) {
    H5Pset_chunk(properties, 1, &count);
    H5Pset_shuffle(properties);
    H5Pset_deflate(properties, 4);
    H5Pset_fletcher32(properties);
  });
  edit([&](hid_t file) {
    const Hdf5Id<H5Dclose> tokens(H5Dopen2(file, "/tokens", H5P_DEFAULT));
    const std::vector<int32_t> values{5, 6, 7, 8, 1, 2};
    H5Dwrite(tokens.get(), H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  });
  const PromptShard read(shard());
  EXPECT_EQ(read.tokens(read.requests()[0].turns[0]), (std::vector<int32_t>{5, 6, 7}));
}

TEST_F(OutsideTest, ResultsAndKeysAreReadByThemselves) {
  const fs::path results = folder_ / "r.h5", elsewhere = folder_ / "elsewhere.h5";
  ResultsFile::create(results, test::sample_layout(4, 0, 0));
  fs::copy_file(results, elsewhere);
  const KvFileShape shape{1, 1, 4, 8, DType::fp32};
  {
    KvFileWriter writer(folder_ / "kv.h5", shape, 7, "a", {{0, 4, 1}});
    const std::vector<std::byte> vectors(4 * shape.vector_bytes());
    for (const KvSide side : {KvSide::keys, KvSide::values}) writer.write({side}, vectors, {});
    writer.finish();
  }
  fs::copy_file(folder_ / "kv.h5", folder_ / "other-kv.h5");
  const auto link = [&](const fs::path& path, const fs::path& to, const char* name) {
    test::Hdf5Editor(path).remove(name);
    const Hdf5Id<H5Fclose> file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
    H5Lcreate_external(to.c_str(), name, file.get(), name, H5P_DEFAULT, H5P_DEFAULT);
  };
  link(results, elsewhere, "/state");
  link(folder_ / "kv.h5", folder_ / "other-kv.h5", "/k");
  test::expect_error<InputError>([&] { ResultsFile{results}; },
                                 {"r.h5: /state is in another file", "elsewhere.h5"});
  test::expect_error<InputError>([&] { KvFileReader(folder_ / "kv.h5", shape, 7); },
                                 {"kv.h5: /k is in another file", "other-kv.h5"});
}

TEST_F(OutsideTest, PipesSocketsAndFoldersAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_directory(folder_ / "folder");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder_ / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int server = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  for (const fs::path& path :
       {folder_ / "pipe", folder_ / "folder", folder_ / "socket", fs::path("/dev/zero")}) {
    test::expect_error<InputError>([&] { PromptShard{path}; }, {path.string()});
    for (const Access access : {Access::read, Access::write})
      test::expect_error<InputError>([&] { ResultsFile(path, access); }, {path.string()});
    test::expect_error<InputError>(
        [&] {
          KvFileReader(path, {1, 1, 4, 8, DType::fp32}, 7);
        },
        {path.string()});
    test::expect_error<SystemError>([&] { JournalReader(path, "head"); }, {path.string()});
  }
  ::close(server);
}

}  // namespace
}  // namespace pecia::io
