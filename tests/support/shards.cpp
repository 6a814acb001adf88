// SPDX-License-Identifier: Apache-2.0
#include "tests/support/shards.hpp"

#include <hdf5.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace pecia::test {
namespace {

template <typename Id>
Id checked(Id id, const char* what) {
  if (id < 0) throw std::runtime_error(std::string("HDF5 refuses to ") + what);
  return id;
}

hid_t string_type(size_t bytes) {
  const hid_t type = checked(H5Tcopy(H5T_C_S1), "copy a type");
  H5Tset_size(type, bytes);
  H5Tset_cset(type, H5T_CSET_UTF8);
  if (bytes != H5T_VARIABLE) H5Tset_strpad(type, H5T_STR_NULLPAD);
  return type;
}

size_t longest(const std::vector<std::string>& texts) {
  size_t bytes = 1;
  for (const std::string& text : texts) bytes = std::max(bytes, text.size());
  return bytes;
}

/// The texts as HDF5 wants them of `type`: pointers, or padded one after the other.
struct StringData {
  StringData(const std::vector<std::string>& texts, Strings strings)
      : width(strings == Strings::fixed_length ? longest(texts) : H5T_VARIABLE) {
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    if (strings == Strings::variable_length) return;
    padded.resize(texts.size() * width);
    for (size_t i = 0; i < texts.size(); ++i) texts[i].copy(padded.data() + i * width, width);
  }
  const void* data() const {
    return width == H5T_VARIABLE ? static_cast<const void*>(pointers.data()) : padded.data();
  }

  size_t width;
  std::vector<const char*> pointers;
  std::vector<char> padded;
};

}  // namespace

Hdf5Editor::Hdf5Editor(const std::filesystem::path& path)
    : file_(checked(std::filesystem::exists(path)
                        ? H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)
                        : H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT),
                    "open a file")) {}

Hdf5Editor::~Hdf5Editor() {
  H5Fclose(file_);
}

void Hdf5Editor::remove(const char* dataset) {
  checked(H5Ldelete(file_, dataset, H5P_DEFAULT), "remove a dataset");
}

void Hdf5Editor::set_values(const char* dataset, int64_t type, const void* values, size_t count) {
  if (H5Lexists(file_, dataset, H5P_DEFAULT) > 0) remove(dataset);
  const hsize_t extent = count;
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t id =
      checked(H5Dcreate2(file_, dataset, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
              "make a dataset");
  if (count > 0)
    checked(H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write a dataset");
  H5Dclose(id);
  H5Sclose(space);
}

void Hdf5Editor::set(const char* dataset, const std::vector<uint8_t>& values) {
  set_values(dataset, H5T_NATIVE_UINT8, values.data(), values.size());
}
void Hdf5Editor::set(const char* dataset, const std::vector<int16_t>& values) {
  set_values(dataset, H5T_NATIVE_INT16, values.data(), values.size());
}
void Hdf5Editor::set(const char* dataset, const std::vector<int32_t>& values) {
  set_values(dataset, H5T_NATIVE_INT32, values.data(), values.size());
}
void Hdf5Editor::set(const char* dataset, const std::vector<int64_t>& values) {
  set_values(dataset, H5T_NATIVE_INT64, values.data(), values.size());
}
void Hdf5Editor::set(const char* dataset, const std::vector<uint64_t>& values) {
  set_values(dataset, H5T_NATIVE_UINT64, values.data(), values.size());
}
void Hdf5Editor::set(const char* dataset, const std::vector<float>& values) {
  set_values(dataset, H5T_NATIVE_FLOAT, values.data(), values.size());
}
void Hdf5Editor::set(const char* dataset, const std::vector<double>& values) {
  set_values(dataset, H5T_NATIVE_DOUBLE, values.data(), values.size());
}

void Hdf5Editor::set(const char* dataset, const std::vector<std::string>& values, Strings strings) {
  const StringData data(values, strings);
  const hid_t type = string_type(data.width);
  set_values(dataset, type, data.data(), values.size());
  H5Tclose(type);
}

void Hdf5Editor::set_matrix(const char* dataset, int64_t rows, int64_t columns) {
  if (H5Lexists(file_, dataset, H5P_DEFAULT) > 0) remove(dataset);
  const hsize_t extents[] = {static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)};
  const std::vector<int64_t> zeros(rows * columns);
  const hid_t space = H5Screate_simple(2, extents, nullptr);
  const hid_t id = checked(
      H5Dcreate2(file_, dataset, H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      "make a matrix");
  checked(H5Dwrite(id, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()), "write it");
  H5Dclose(id);
  H5Sclose(space);
}

void Hdf5Editor::set_unwritten(const char* dataset, int64_t rows) {
  if (H5Lexists(file_, dataset, H5P_DEFAULT) > 0) remove(dataset);
  const hsize_t extent = rows, chunk = std::min<hsize_t>(extent, 1024);
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(properties, 1, &chunk);
  H5Dclose(checked(
      H5Dcreate2(file_, dataset, H5T_NATIVE_INT32, space, H5P_DEFAULT, properties, H5P_DEFAULT),
      "make a chunked dataset"));
  H5Pclose(properties);
  H5Sclose(space);
}

void Hdf5Editor::set_compressed(const char* dataset, const std::vector<int32_t>& values) {
  if (H5Lexists(file_, dataset, H5P_DEFAULT) > 0) remove(dataset);
  const hsize_t extent = values.size(), chunk = std::min<hsize_t>(extent, 64);
  const hid_t space = H5Screate_simple(1, &extent, nullptr);
  const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(properties, 1, &chunk);
  H5Pset_deflate(properties, 4);
  const hid_t id = checked(
      H5Dcreate2(file_, dataset, H5T_NATIVE_INT32, space, H5P_DEFAULT, properties, H5P_DEFAULT),
      "make a compressed dataset");
  checked(H5Dwrite(id, H5T_NATIVE_INT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), "write it");
  H5Dclose(id);
  H5Pclose(properties);
  H5Sclose(space);
}

void Hdf5Editor::set_attribute(const char* name, const std::string& text, Strings strings) {
  if (H5Aexists(file_, name) > 0) H5Adelete(file_, name);
  const StringData data({text}, strings);
  const char* pointer = text.c_str();
  const hid_t type = string_type(data.width);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t id =
      checked(H5Acreate2(file_, name, type, space, H5P_DEFAULT, H5P_DEFAULT), "make an attribute");
  H5Awrite(id, type, strings == Strings::fixed_length ? data.data() : &pointer);
  H5Aclose(id);
  H5Sclose(space);
  H5Tclose(type);
}

void Hdf5Editor::set_attribute(const char* name, int64_t value) {
  if (H5Aexists(file_, name) > 0) H5Adelete(file_, name);
  const hid_t space = H5Screate(H5S_SCALAR);
  const hid_t id =
      checked(H5Acreate2(file_, name, H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT),
              "make an attribute");
  H5Awrite(id, H5T_NATIVE_INT64, &value);
  H5Aclose(id);
  H5Sclose(space);
}

std::vector<int32_t> ascending(int32_t count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 1);
  return tokens;
}

void write_shard(const std::filesystem::path& path, const ShardContent& content) {
  std::vector<int32_t> tokens;
  std::vector<int64_t> turn_offsets = {0}, request_offsets = {0};
  std::vector<std::string> ids;
  for (const ShardRequest& request : content.requests) {
    ids.push_back(request.id);
    for (const ShardTurn& turn : request.turns) {
      tokens.insert(tokens.end(), turn.tokens.begin(), turn.tokens.end());
      turn_offsets.push_back(static_cast<int64_t>(tokens.size()));
    }
    request_offsets.push_back(static_cast<int64_t>(turn_offsets.size()) - 1);
  }
  std::filesystem::remove(path);
  Hdf5Editor file(path);
  file.set("/tokens", tokens);
  file.set("/turn_offsets", turn_offsets);
  file.set("/request_offsets", request_offsets);
  file.set("/request_id", ids, content.strings);
  const auto set = [&](const char* name, const auto& values) {
    if (!values.empty()) file.set(name, values);
  };
  set("/max_new_tokens", content.max_new_tokens);
  set("/temperature", content.temperature);
  set("/top_p", content.top_p);
  set("/min_p", content.min_p);
  set("/repetition_penalty", content.repetition_penalty);
  set("/presence_penalty", content.presence_penalty);
  set("/frequency_penalty", content.frequency_penalty);
  set("/top_k", content.top_k);
  set("/logprobs", content.logprobs);
  set("/ignore_eos", content.ignore_eos);
  set("/logit_bias_offsets", content.logit_bias_offsets);
  set("/logit_bias_tokens", content.logit_bias_tokens);
  set("/logit_bias", content.logit_bias);
  set("/seed", content.seed);
  if (!content.stop.empty()) file.set("/stop", content.stop, content.strings);
  if (!content.arrival_s.empty()) file.set("/arrival_s", content.arrival_s);
  const auto set_text = [&](const char* name, const std::string& text) {
    if (!text.empty()) file.set_attribute(name, text, content.strings);
  };
  set_text("schema", content.schema);
  set_text("followup", content.followup);
  set_text("tokenizer_sha256", content.tokenizer_sha256);
  set_text("created_by", content.created_by);
  if (content.vocab_size != 0) file.set_attribute("vocab_size", content.vocab_size);
}

}  // namespace pecia::test
