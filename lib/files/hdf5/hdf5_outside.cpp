// SPDX-License-Identifier: Apache-2.0
#include "lib/files/hdf5/hdf5_outside.hpp"

#include <array>

#include "lib/base/core/error.hpp"
#include "lib/files/hdf5/hdf5.hpp"

namespace pecia::io {
namespace {

/// Notes where the link leads and keeps HDF5 from following it.
herr_t refuse_link(const char*, const char*, const char* file, const char*, unsigned*, hid_t,
                   void* noted) {
  *static_cast<std::string*>(noted) = file;
  return -1;
}

void refuse_other_storage(hid_t properties, const std::string& where) {
  if (H5Pget_layout(properties) == H5D_VIRTUAL)
    fail<InputError>(
        "{} is a virtual dataset, whose data are in other datasets; make it whole with h5repack -l "
        "CONTI, or make the file again",
        where);
  if (H5Pget_external_count(properties) == 0) return;
  std::array<char, 256> file{};
  off_t offset = 0;
  hsize_t bytes = 0;
  H5Pget_external(properties, 0, file.size() - 1, file.data(), &offset, &bytes);
  fail<InputError>(
      "{} has its data in another file ({}), by external storage; make it whole with h5repack -l "
      "CONTI, or make the file again",
      where, file.data());
}

void refuse_plugins(hid_t properties, const std::string& where) {
  const int filters = H5Pget_nfilters(properties);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0;
    size_t values = 0;
    std::array<char, 64> name{};
    // Without a place for its configuration, HDF5 does not look for the filter.
    const H5Z_filter_t filter = H5Pget_filter2(properties, i, &flags, &values, nullptr,
                                               name.size() - 1, name.data(), nullptr);
    if (filter > H5Z_FILTER_NONE && filter < H5Z_FILTER_RESERVED) continue;
    fail<InputError>(
        "{} is compressed with filter {}{}, which is a plugin, and plugins are not loaded; unpack "
        "the file with h5repack -f NONE where the plugin is installed",
        where, static_cast<int>(filter), name[0] == '\0' ? "" : fmt::format(" ({})", name.data()));
  }
}

}  // namespace

hid_t open_inside(hid_t file, const char* name, const std::string& where) {
  std::string other_file;
  const Hdf5Properties access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_elink_cb(access.get(), refuse_link, &other_file);
  Hdf5Id<H5Dclose> dataset(H5Dopen2(file, name, access.get()));
  if (!other_file.empty())
    fail<InputError>(
        "{} is in another file ({}), by an external link; copy it into this one with h5copy -f "
        "ext, or make the file again",
        where, other_file);
  if (!dataset.valid()) fail<InputError>("{} is no readable dataset: {}", where, hdf5_message());
  const Hdf5Properties properties(H5Dget_create_plist(dataset.get()));
  refuse_other_storage(properties.get(), where);
  refuse_plugins(properties.get(), where);
  return dataset.release();
}

}  // namespace pecia::io
