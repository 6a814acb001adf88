// SPDX-License-Identifier: Apache-2.0
#include "lib/files/hdf5/hdf5.hpp"

#include <cstdlib>
#include <mutex>
#include <system_error>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "lib/files/hdf5/hdf5_heap.hpp"
#include "lib/files/hdf5/hdf5_outside.hpp"

namespace pecia::io {
namespace {

constexpr size_t max_attribute_bytes = 64 << 10;  // limit of an object header

/// Call it before the first HDF5 call of a thread. It turns off locks, which fail on many network
/// file systems (RunLock guards the output folder), plugins for filters that a file asks for, and
/// printing, a setting that HDF5 keeps per thread.
void prepare_hdf5() {
  static std::once_flag once;
  std::call_once(once, [] {
    ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", /*overwrite=*/0);
    H5dont_atexit();
    unsigned plugins = 0;
    if (H5PLget_loading_state(&plugins) >= 0)
      H5PLset_loading_state(plugins & ~static_cast<unsigned>(H5PL_FILTER_PLUGIN));
  });
  thread_local const herr_t quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  static_cast<void>(quiet);
}

template <typename E, typename Result>
Result checked(Result result, const std::string& where, const char* problem) {
  if (result < 0) fail<E>("{} {}: {}", where, problem, hdf5_message());
  return result;
}

std::vector<hsize_t> hdf5_extents(const std::vector<int64_t>& extents) {
  return {extents.begin(), extents.end()};
}

}  // namespace

std::string hdf5_message() {
  std::string message = "HDF5 gives no reason";
  const H5E_walk2_t take_first = [](unsigned n, const H5E_error2_t* error, void* text) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &message);
  return message;
}

Hdf5Type hdf5_text_type(int64_t bytes) {
  prepare_hdf5();
  Hdf5Type type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), bytes);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

Hdf5Dataset::Hdf5Dataset(hid_t id, std::string where) : id_(id), where_(std::move(where)) {
  type_ = Hdf5Type(checked<InputError>(H5Dget_type(id_.get()), where_, "has no readable type"));
  const Hdf5Space space(
      checked<InputError>(H5Dget_space(id_.get()), where_, "has no readable shape"));
  const int rank =
      checked<InputError>(H5Sget_simple_extent_ndims(space.get()), where_, "has no readable shape");
  std::vector<hsize_t> extents(rank);
  H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  int64_t bytes = static_cast<int64_t>(H5Tget_size(type_.get()));
  for (const hsize_t extent : extents) {
    extents_.push_back(static_cast<int64_t>(extent));
    if (extent > INT64_MAX || __builtin_mul_overflow(elements_, extents_.back(), &elements_) ||
        __builtin_mul_overflow(bytes, extents_.back(), &bytes))
      fail<InputError>("{} claims more than 2^63 bytes; the file is damaged", where_);
  }
}

std::string Hdf5Dataset::type_name() const {
  const size_t bits = 8 * H5Tget_size(type());
  switch (type_class()) {
    case H5T_INTEGER:
      return fmt::format("{}int{}", H5Tget_sign(type()) == H5T_SGN_NONE ? "u" : "", bits);
    case H5T_FLOAT:
      return fmt::format("float{}", bits);
    case H5T_STRING:
      return H5Tis_variable_str(type()) > 0 ? "variable-length string" : "fixed-length string";
    case H5T_COMPOUND:
      return "compound";
    case H5T_ENUM:
      return "enum";
    default:
      return "another type";
  }
}

void Hdf5Dataset::check_whole() const {
  const Hdf5Properties properties(H5Dget_create_plist(id()));
  const hsize_t stored = H5Dget_storage_size(id());
  if (H5Pget_layout(properties.get()) == H5D_CHUNKED) {
    hsize_t chunk = 0, chunks = 0;
    const Hdf5Space space(H5Dget_space(id()));
    H5Pget_chunk(properties.get(), 1, &chunk);
    if (H5Dget_num_chunks(id(), space.get(), &chunks) < 0 || chunk == 0)
      fail<InputError>("{} has chunks that cannot be found: {}", where_, hdf5_message());
    const hsize_t needed = (static_cast<hsize_t>(elements_) + chunk - 1) / chunk;
    if (chunks < needed)
      fail<InputError>(
          "{} was not wholly written: {} of {} chunks are stored; write the file again", where_,
          chunks, needed);
    return;
  }
  const hsize_t needed = static_cast<hsize_t>(elements_) * H5Tget_size(type());
  if (stored < needed)
    fail<InputError>("{} was not wholly written: {} of {} bytes are stored; write the file again",
                     where_, stored, needed);
  // HDF5 trusts the header and reads zeros beyond the end of the file.
  const Hdf5Id<H5Fclose> file(H5Iget_file_id(id()));
  hsize_t file_bytes = 0;
  H5Fget_filesize(file.get(), &file_bytes);
  if (stored > file_bytes || static_cast<hsize_t>(offset().value_or(0)) > file_bytes - stored)
    fail<InputError>("{} lies beyond the file's {} bytes; the file is damaged, write it again",
                     where_, file_bytes);
}

std::optional<int64_t> Hdf5Dataset::offset() const {
  const Hdf5Properties properties(H5Dget_create_plist(id()));
  if (H5Pget_layout(properties.get()) != H5D_CONTIGUOUS) return std::nullopt;
  const haddr_t offset = H5Dget_offset(id());
  if (offset == HADDR_UNDEF) return std::nullopt;
  return static_cast<int64_t>(offset);
}

void Hdf5Dataset::check_readable_list() const {
  if (extents_.size() != 1)
    fail<InputError>("{} has {} dimensions; it must have 1", where_, extents_.size());
  const Hdf5Properties properties(H5Dget_create_plist(id()));
  if (H5Pall_filters_avail(properties.get()) <= 0)
    fail<InputError>(
        "{} is compressed with a filter that this HDF5 was built without; unpack the file with "
        "h5repack -f NONE where the filter is installed",
        where_);
  if (elements_ > 0) check_whole();
}

void Hdf5Dataset::check_readable_pairs() const {
  if (extents_.size() != 2 || extents_[1] != 2)
    fail<InputError>("{} must have two columns", where_);
  const Hdf5Properties properties(H5Dget_create_plist(id()));
  if (elements_ > 0 && H5Pget_layout(properties.get()) != H5D_CONTIGUOUS)
    fail<InputError>("{} is in chunks; unpack the file with h5repack -l CONTI", where_);
  if (elements_ > 0) check_whole();
}

void Hdf5Dataset::read(int64_t begin, int64_t count, hid_t memory_type, void* out) const {
  if (count == 0) return;
  prepare_hdf5();
  const hsize_t start = begin, size = count;
  const Hdf5Space file_space(H5Dget_space(id())), memory_space(H5Screate_simple(1, &size, nullptr));
  checked<InputError>(
      H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, &start, nullptr, &size, nullptr),
      where_, "cannot be addressed");
  if (H5Dread(id(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, out) < 0)
    fail<InputError>("{}[{}:{}] cannot be read: {}", where_, begin, begin + count, hdf5_message());
}

void Hdf5Dataset::write(hid_t memory_type, const void* data) const {
  if (elements_ == 0) return;
  checked<SystemError>(H5Dwrite(id(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), where_,
                       "cannot be written");
}

Hdf5File Hdf5File::open(const std::filesystem::path& path) {
  prepare_hdf5();
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    fail<InputError>("{} is a folder; name the HDF5 files in it", path.string());
  return open(File::open_input(path));
}

Hdf5File Hdf5File::open(const File& file) {
  prepare_hdf5();
  const std::string path = file.path().string();
  const std::filesystem::path same = path_of_descriptor(file.descriptor());
  if (H5Fis_hdf5(same.c_str()) <= 0)
    fail<InputError>("{} is no HDF5 file; make prompt shards with scripts/pecia-pack", path);
  const hid_t id = H5Fopen(same.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (id < 0)
    fail<InputError>("{} cannot be opened, it may have been cut off or still be being written: {}",
                     path, hdf5_message());
  return Hdf5File(id, path);
}

Hdf5File Hdf5File::create(const std::filesystem::path& path, Format format) {
  return create(File::make(path), format);
}

Hdf5File Hdf5File::create(const File& file, Format format) {
  prepare_hdf5();
  const std::filesystem::path same = path_of_descriptor(file.descriptor());
  const Hdf5Properties access(H5Pcreate(H5P_FILE_ACCESS));
  if (format == Format::checksummed)
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST);
  const hid_t id = H5Fcreate(same.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get());
  if (id < 0) fail<SystemError>("{} cannot be made: {}", file.path().string(), hdf5_message());
  return Hdf5File(id, file.path().string());
}

bool Hdf5File::has(const char* name) const {
  return H5Lexists(id_.get(), name, H5P_DEFAULT) > 0;
}

Hdf5Dataset Hdf5File::dataset(const char* name) const {
  const std::string where = path_ + ": " + name;
  if (!has(name)) fail<InputError>("{} is missing", where);
  return Hdf5Dataset(open_inside(id_.get(), name, where), where);
}

Hdf5Dataset Hdf5File::create_dataset(const char* name, hid_t type,
                                     const std::vector<int64_t>& extents) {
  const std::string where = path_ + ": " + name;
  const auto sizes = hdf5_extents(extents);
  const Hdf5Space space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr));
  const Hdf5Properties properties(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(properties.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER);
  const hid_t id =
      H5Dcreate2(id_.get(), name, type, space.get(), H5P_DEFAULT, properties.get(), H5P_DEFAULT);
  return Hdf5Dataset(checked<SystemError>(id, where, "cannot be made"), where);
}

Hdf5Attribute Hdf5File::open_attribute(const char* name) const {
  if (H5Aexists(id_.get(), name) <= 0) return {};
  const std::string where = fmt::format("{}: attribute '{}'", path_, name);
  Hdf5Attribute attribute(
      checked<InputError>(H5Aopen(id_.get(), name, H5P_DEFAULT), where, "cannot be opened"));
  const Hdf5Space space(H5Aget_space(attribute.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != 1)
    fail<InputError>("{} must be a single value", where);
  return attribute;
}

std::optional<std::string> Hdf5File::text_attribute(const char* name) const {
  const Hdf5Attribute attribute = open_attribute(name);
  if (!attribute.valid()) return std::nullopt;
  const std::string where = fmt::format("{}: attribute '{}'", path_, name);
  const Hdf5Type type(H5Aget_type(attribute.get()));
  if (H5Tget_class(type.get()) != H5T_STRING) fail<InputError>("{} must be text", where);
  if (H5Tis_variable_str(type.get()) > 0) {
    HeapReference reference;
    checked<InputError>(H5Aread(attribute.get(), heap_reference_type(), reference.data()), where,
                        "cannot be read");
    return heap_text(attribute.get(), reference, where);
  }
  const size_t bytes = H5Tget_size(type.get());
  if (bytes > max_attribute_bytes)
    fail<InputError>("{} claims {} bytes; the file is damaged", where, bytes);
  std::vector<char> data(bytes);
  checked<InputError>(H5Aread(attribute.get(), type.get(), data.data()), where, "cannot be read");
  return text_of(type.get(), data.data());
}

std::optional<int64_t> Hdf5File::integer_attribute(const char* name) const {
  const Hdf5Attribute attribute = open_attribute(name);
  if (!attribute.valid()) return std::nullopt;
  const std::string where = fmt::format("{}: attribute '{}'", path_, name);
  const Hdf5Type type(H5Aget_type(attribute.get()));
  if (H5Tget_class(type.get()) != H5T_INTEGER) fail<InputError>("{} must be an integer", where);
  int64_t value = 0;
  checked<InputError>(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), where, "cannot be read");
  return value;
}

void Hdf5File::write_attribute(const char* name, hid_t type, const void* value) {
  const std::string where = fmt::format("{}: attribute '{}'", path_, name);
  const Hdf5Space space(H5Screate(H5S_SCALAR));
  const Hdf5Attribute attribute(
      checked<SystemError>(H5Acreate2(id_.get(), name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                           where, "cannot be made"));
  checked<SystemError>(H5Awrite(attribute.get(), type, value), where, "cannot be written");
}

void Hdf5File::set_attribute(const char* name, const std::string& text) {
  const Hdf5Type type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), H5T_VARIABLE);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  const char* data = text.c_str();
  write_attribute(name, type.get(), &data);
}

void Hdf5File::set_attribute(const char* name, int64_t value) {
  write_attribute(name, H5T_NATIVE_INT64, &value);
}

void Hdf5File::close() {
  checked<SystemError>(H5Fflush(id_.get(), H5F_SCOPE_GLOBAL), path_, "cannot be written");
  checked<SystemError>(id_.reset(), path_, "cannot be closed");
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace pecia::io
