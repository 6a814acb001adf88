// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Owners of the HDF5 C API's identifiers. They report its failures as exceptions.
///
/// Messages begin with file and dataset and end with HDF5's innermost message; nothing is printed.
/// Failed reads are InputErrors, failed writes SystemErrors. Not thread-safe: one thread uses it at
/// a time.
///
/// A file is read by itself. What leads to other files or to code is refused by name: external links
/// and storage, virtual datasets (hdf5_outside.hpp), filters that HDF5 would load as plugins.

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/files/disk/file.hpp"

namespace pecia::io {

/// Owns one identifier, which the function `close` of its kind closes.
template <herr_t (*close)(hid_t)>
class Hdf5Id {
 public:
  Hdf5Id() = default;
  explicit Hdf5Id(hid_t id) : id_(id) {}
  ~Hdf5Id() {
    if (id_ >= 0) close(id_);
  }
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }

  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Gives the identifier to the caller, who closes it.
  hid_t release() { return std::exchange(id_, H5I_INVALID_HID); }
  /// Closes the identifier now. Returns a negative value when HDF5 fails.
  herr_t reset() { return close(std::exchange(id_, H5I_INVALID_HID)); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};
using Hdf5Type = Hdf5Id<H5Tclose>;
using Hdf5Space = Hdf5Id<H5Sclose>;
using Hdf5Properties = Hdf5Id<H5Pclose>;
using Hdf5Attribute = Hdf5Id<H5Aclose>;

/// The calling thread's last failure, in the words of the innermost function.
std::string hdf5_message();

/// Type of fixed-length UTF-8 padded with NUL, which this program's files use for text.
Hdf5Type hdf5_text_type(int64_t bytes);

class Hdf5Dataset {
 public:
  Hdf5Dataset(hid_t id, std::string where);

  /// "FILE: /name", the beginning of messages.
  const std::string& where() const { return where_; }
  hid_t id() const { return id_.get(); }
  hid_t type() const { return type_.get(); }
  H5T_class_t type_class() const { return H5Tget_class(type_.get()); }
  /// The type's name in messages, e.g. "float32", "fixed-length string".
  std::string type_name() const;

  const std::vector<int64_t>& extents() const { return extents_; }
  int64_t elements() const { return elements_; }

  /// Offset of the data of a contiguous dataset in the file. Absent for other layouts and for
  /// datasets without storage, such as empty ones.
  std::optional<int64_t> offset() const;

  /// Throws InputError unless the dataset is one-dimensional, this HDF5 has its filters and all of
  /// it was written.
  void check_readable_list() const;
  /// Throws InputError unless the dataset has two columns, lies in one piece and all of it was written.
  void check_readable_pairs() const;

  /// Reads elements [begin, begin + count) of a one-dimensional dataset, converted to the memory
  /// type.
  void read(int64_t begin, int64_t count, hid_t memory_type, void* out) const;
  /// Writes all elements, which have the memory type.
  void write(hid_t memory_type, const void* data) const;

 private:
  void check_whole() const;

  Hdf5Id<H5Dclose> id_;
  Hdf5Type type_;
  std::string where_;
  std::vector<int64_t> extents_;
  int64_t elements_ = 1;
};

class Hdf5File {
 public:
  /// Opens an existing file for reading. Throws InputError when it is absent, not HDF5, or
  /// truncated.
  static Hdf5File open(const std::filesystem::path& path);
  /// Opens the same file, whatever has its path by now. `file` need not outlive this object.
  static Hdf5File open(const File& file);
  /// widest: HDF5 1.0 can read the file. checksummed: HDF5 1.8 can read it, and the metadata has
  /// checksums, so that damage to it is an error when the file is read.
  enum class Format { widest, checksummed };
  /// Makes an empty file and replaces an existing one.
  static Hdf5File create(const std::filesystem::path& path, Format format = Format::widest);
  /// Makes an empty file of `file`, in place of what it holds. `file` need not outlive this object.
  static Hdf5File create(const File& file, Format format = Format::widest);

  bool has(const char* name) const;
  /// Throws InputError where the dataset is missing, unreadable, or not in this file alone.
  Hdf5Dataset dataset(const char* name) const;
  /// Makes a contiguous dataset. Its space is allocated at once and not filled.
  Hdf5Dataset create_dataset(const char* name, hid_t type, const std::vector<int64_t>& extents);

  /// Root attributes of type text or integer; absent when the file has none of that name.
  std::optional<std::string> text_attribute(const char* name) const;
  std::optional<int64_t> integer_attribute(const char* name) const;
  /// Writes variable-length UTF-8, so that the text may be longer than the 64 KiB of an object
  /// header.
  void set_attribute(const char* name, const std::string& text);
  void set_attribute(const char* name, int64_t value);

  /// Writes everything and closes the file; no dataset may be open. The destructor also closes the
  /// file but cannot report errors.
  void close();

 private:
  Hdf5File(hid_t id, std::string path) : id_(id), path_(std::move(path)) {}
  Hdf5Attribute open_attribute(const char* name) const;
  void write_attribute(const char* name, hid_t type, const void* value);

  Hdf5Id<H5Fclose> id_;
  std::string path_;
};

/// Reads a whole one-dimensional dataset. Throws InputError naming dataset and row. Accepts
/// integers of any size if the values fit, and floats of any size. Integers and floats are not
/// converted to each other.
std::vector<int64_t> read_int64(const Hdf5Dataset& dataset);
std::vector<int32_t> read_int32(const Hdf5Dataset& dataset);
/// Reads a dataset [rows, 2] of integers, row by row.
std::vector<std::pair<int64_t, int64_t>> read_int64_pairs(const Hdf5Dataset& dataset);
/// Reads an enumeration of bytes.
std::vector<uint8_t> read_enum(const Hdf5Dataset& dataset);
std::vector<float> read_float(const Hdf5Dataset& dataset);
std::vector<double> read_double(const Hdf5Dataset& dataset);
/// Reads text of fixed or variable length; any padding is removed.
std::vector<std::string> read_text(const Hdf5Dataset& dataset);

/// One value of a string type; `data` is what HDF5 gave for that type.
std::string text_of(hid_t type, const char* data);

/// Version of the library in use, e.g. "1.10.8".
std::string hdf5_version();

}  // namespace pecia::io
