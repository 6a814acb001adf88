// SPDX-License-Identifier: Apache-2.0
#include <exception>
#include <limits>

#include "lib/base/core/error.hpp"
#include "lib/files/hdf5/hdf5.hpp"
#include "lib/files/hdf5/hdf5_heap.hpp"

namespace pecia::io {
namespace {

void check_class(const Hdf5Dataset& dataset, H5T_class_t wanted, const char* what) {
  if (dataset.type_class() != wanted)
    fail<InputError>("{} holds {}; write it as {}", dataset.where(), dataset.type_name(), what);
  dataset.check_readable_list();
}

/// Allocates `per_row` values for each row.
template <typename T>
std::vector<T> space_for(const Hdf5Dataset& dataset, size_t per_row = 1) {
  try {
    return std::vector<T>(dataset.elements() * per_row);
  } catch (const std::exception&) {  // bad_alloc, or length_error for more than any machine has
    fail<InputError>("{}: its {} rows do not fit into memory; split the file", dataset.where(),
                     dataset.elements());
  }
}

template <typename T>
std::vector<T> read_list(const Hdf5Dataset& dataset, hid_t memory_type) {
  auto values = space_for<T>(dataset);
  dataset.read(0, dataset.elements(), memory_type, values.data());
  return values;
}

}  // namespace

std::vector<int64_t> read_int64(const Hdf5Dataset& dataset) {
  check_class(dataset, H5T_INTEGER, "int32 or int64");
  if (H5Tget_sign(dataset.type()) != H5T_SGN_NONE)
    return read_list<int64_t>(dataset, H5T_NATIVE_INT64);
  // HDF5 would silently clamp values above 2^63 - 1. Read as unsigned they appear negative.
  auto values = read_list<int64_t>(dataset, H5T_NATIVE_UINT64);
  for (size_t row = 0; row < values.size(); ++row)
    if (values[row] < 0)
      fail<InputError>("{}[{}] is {}, more than an int64 holds", dataset.where(), row,
                       static_cast<uint64_t>(values[row]));
  return values;
}

std::vector<int32_t> read_int32(const Hdf5Dataset& dataset) {
  const std::vector<int64_t> wide = read_int64(dataset);
  for (size_t row = 0; row < wide.size(); ++row)
    if (wide[row] < std::numeric_limits<int32_t>::min() ||
        wide[row] > std::numeric_limits<int32_t>::max())
      fail<InputError>("{}[{}] is {}; it must fit an int32", dataset.where(), row, wide[row]);
  return {wide.begin(), wide.end()};
}

std::vector<std::pair<int64_t, int64_t>> read_int64_pairs(const Hdf5Dataset& dataset) {
  if (dataset.type_class() != H5T_INTEGER)
    fail<InputError>("{} holds {}; write it as int64", dataset.where(), dataset.type_name());
  dataset.check_readable_pairs();
  auto values = space_for<int64_t>(dataset);
  if (!values.empty() &&
      H5Dread(dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
    fail<InputError>("{} cannot be read: {}", dataset.where(), hdf5_message());
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (size_t row = 0; row + 1 < values.size(); row += 2)
    pairs.emplace_back(values[row], values[row + 1]);
  return pairs;
}

std::vector<uint8_t> read_enum(const Hdf5Dataset& dataset) {
  check_class(dataset, H5T_ENUM, "an enumeration of uint8");
  return read_list<uint8_t>(dataset, H5T_NATIVE_UINT8);
}

std::vector<float> read_float(const Hdf5Dataset& dataset) {
  check_class(dataset, H5T_FLOAT, "float32");
  return read_list<float>(dataset, H5T_NATIVE_FLOAT);
}

std::vector<double> read_double(const Hdf5Dataset& dataset) {
  check_class(dataset, H5T_FLOAT, "float64");
  return read_list<double>(dataset, H5T_NATIVE_DOUBLE);
}

std::string text_of(hid_t type, const char* data) {
  std::string_view text(data, H5Tget_size(type));
  switch (H5Tget_strpad(type)) {
    case H5T_STR_NULLTERM:
      return std::string(text.substr(0, text.find('\0')));
    case H5T_STR_SPACEPAD:
      return std::string(text.substr(0, text.find_last_not_of(' ') + 1));
    default:
      return std::string(text.substr(0, text.find_last_not_of('\0') + 1));
  }
}

std::vector<std::string> read_text(const Hdf5Dataset& dataset) {
  check_class(dataset, H5T_STRING, "fixed-length UTF-8 strings");
  std::vector<std::string> texts;
  texts.reserve(dataset.elements());
  if (H5Tis_variable_str(dataset.type()) > 0) {
    const auto references = read_list<HeapReference>(dataset, heap_reference_type());
    for (const HeapReference& reference : references)
      texts.push_back(heap_text(dataset.id(), reference, dataset.where()));
    return texts;
  }
  const size_t width = H5Tget_size(dataset.type());
  auto data = space_for<char>(dataset, width);
  dataset.read(0, dataset.elements(), dataset.type(), data.data());
  for (int64_t row = 0; row < dataset.elements(); ++row)
    texts.push_back(text_of(dataset.type(), data.data() + row * width));
  return texts;
}

}  // namespace pecia::io
