// SPDX-License-Identifier: Apache-2.0
#include "lib/files/hdf5/hdf5_heap.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/hdf5/hdf5.hpp"

namespace pecia::io {
namespace {

constexpr uint64_t header_bytes = 16;  // size of a collection's header and of each object's header
constexpr const char* damaged = "refers to a damaged part of the file; write the file again";

template <typename T>
T decoded(std::span<const std::byte> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

/// A conversion from file to memory that keeps the bytes unchanged.
herr_t keep_bytes(hid_t, hid_t, H5T_cdata_t* data, size_t, size_t, size_t, void*, void*, hid_t) {
  if (data->command == H5T_CONV_INIT) data->need_bkg = H5T_BKG_NO;
  return 0;
}

hid_t make_reference_type() {
  Hdf5Type text(H5Tcopy(H5T_C_S1));
  H5Tset_size(text.get(), H5T_VARIABLE);
  const hid_t reference = H5Tcreate(H5T_OPAQUE, sizeof(HeapReference));
  if (H5Tregister(H5T_PERS_SOFT, "heap reference", text.get(), reference, keep_bytes) < 0)
    fail<SystemError>("HDF5 takes no conversion: {}", hdf5_message());
  return reference;
}

/// The file offset of address 0. Throws InputError when addresses do not have 8 bytes.
uint64_t base_address(hid_t file, const std::string& where) {
  const Hdf5Properties properties(H5Fget_create_plist(file));
  size_t address_bytes = 0, length_bytes = 0;
  hsize_t user_block = 0;
  if (H5Pget_sizes(properties.get(), &address_bytes, &length_bytes) < 0 ||
      H5Pget_userblock(properties.get(), &user_block) < 0 || address_bytes != 8 ||
      length_bytes != 8)
    fail<InputError>("{} is in a file with addresses of {} bytes; copy it with h5repack", where,
                     address_bytes);
  return user_block;
}

}  // namespace

hid_t heap_reference_type() {
  static const hid_t type = make_reference_type();
  return type;
}

std::string heap_text(hid_t object, const HeapReference& reference, const std::string& where) {
  const auto length = decoded<uint32_t>(reference, 0);
  const auto address = decoded<uint64_t>(reference, 4);
  const auto index = decoded<uint32_t>(reference, 12);
  if (length == 0) return {};

  const Hdf5Id<H5Fclose> hdf5(H5Iget_file_id(object));
  const uint64_t base = base_address(hdf5.get(), where);
  void* descriptor = nullptr;
  if (H5Fget_vfd_handle(hdf5.get(), H5P_DEFAULT, &descriptor) < 0)
    fail<SystemError>("{} cannot be read: {}", where, hdf5_message());
  const File file = File::sharing(*static_cast<const int*>(descriptor), where);
  const auto file_bytes = static_cast<uint64_t>(file.size());
  const auto fits = [&](uint64_t offset, uint64_t bytes) {
    return offset <= file_bytes && bytes <= file_bytes - offset;
  };

  uint64_t at = base + address;
  std::array<std::byte, header_bytes> header;
  if (at < base || !fits(at, header_bytes)) fail<InputError>("{} {}", where, damaged);
  file.read_at(static_cast<int64_t>(at), header);
  const auto collection_bytes = decoded<uint64_t>(header, 8);
  if (std::memcmp(header.data(), "GCOL", 4) != 0 || !fits(at, collection_bytes))
    fail<InputError>("{} {}", where, damaged);
  const uint64_t end = at + collection_bytes;
  for (at += header_bytes; at + header_bytes <= end;) {
    file.read_at(static_cast<int64_t>(at), header);
    const auto object_index = decoded<uint16_t>(header, 0);
    const auto object_bytes = decoded<uint64_t>(header, 8);
    at += header_bytes;
    if (object_index == 0 || object_bytes > end - at) break;  // 0: free space up to the end
    if (object_index == index) {
      std::string text(std::min<uint64_t>(length, object_bytes), '\0');
      file.read_at(static_cast<int64_t>(at), std::as_writable_bytes(std::span(text)));
      return text.substr(0, text.find('\0'));
    }
    at += (object_bytes + 7) / 8 * 8;
  }
  fail<InputError>("{} {}", where, damaged);
}

}  // namespace pecia::io
