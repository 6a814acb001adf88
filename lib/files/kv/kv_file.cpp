// SPDX-License-Identifier: Apache-2.0
#include "lib/files/kv/kv_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lib/base/core/build_info.hpp"
#include "lib/base/core/error.hpp"
#include "lib/files/hdf5/hdf5.hpp"

namespace pecia::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* schema = "pecia.kv/1";
constexpr std::array vector_names = {"/k", "/v"}, scale_names = {"/k_scale", "/v_scale"};

size_t index_of(KvSide side) {
  return side == KvSide::keys ? 0 : 1;
}

int64_t product(std::initializer_list<int64_t> factors) {
  constexpr int64_t most = int64_t{1} << 62;
  int64_t result = 1;
  for (const int64_t factor : factors)
    if (factor < 0 || __builtin_mul_overflow(result, factor, &result) || result > most)
      fail<InvalidArgument>("keys and values of more than 2^62 bytes");
  return result;
}

std::vector<int64_t> vector_extents(const KvFileShape& shape) {
  return {shape.layers, shape.heads, shape.tokens, shape.head_dim};
}
std::vector<int64_t> scale_extents(const KvFileShape& shape) {
  return {shape.layers, shape.heads, shape.tokens};
}
std::vector<int64_t> checksum_extents(const KvFileShape& shape) {
  return {shape.sides, shape.layers, shape.heads, shape.blocks()};
}

hid_t type_of(DType dtype) {
  if (dtype == DType::fp32) return H5T_IEEE_F32LE;
  return size_of(dtype) == 2 ? H5T_STD_U16LE : H5T_STD_U8LE;
}

/// Each step is one-to-one in the word and in the previous sum, so every change of a single word is
/// detected. The rotation carries high bits down.
class Checksum {
 public:
  explicit Checksum(uint64_t seed) : sum_(seed) {}

  void add(std::span<const std::byte> bytes) {
    constexpr size_t word = sizeof(uint64_t);
    for (; bytes.size() >= word; bytes = bytes.subspan(word)) add_word(bytes.first(word));
    if (!bytes.empty()) add_word(bytes);
  }
  uint64_t value() const { return sum_; }

 private:
  void add_word(std::span<const std::byte> bytes) {
    constexpr uint64_t odd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    sum_ = (std::rotl(sum_, 23) ^ word) * odd;
  }
  uint64_t sum_;
};

/// Index of the block's checksum in the list.
int64_t index_of(const KvFileShape& shape, const KvBlock& at) {
  PECIA_CHECK(at.layer >= 0 && at.layer < shape.layers && at.head >= 0 && at.head < shape.heads &&
                  at.block >= 0 && at.block < shape.blocks(),
              "block {} of head {} in layer {} of a file of {}, {} and {}", at.block, at.head,
              at.layer, shape.blocks(), shape.heads, shape.layers);
  const auto side = static_cast<int64_t>(index_of(at.side));
  PECIA_CHECK(side < shape.sides, "values of a file that has keys alone");
  return ((side * shape.layers + at.layer) * shape.heads + at.head) * shape.blocks() + at.block;
}

/// Number of tokens before the block in its dataset.
int64_t first_token(const KvFileShape& shape, const KvBlock& at) {
  return (at.layer * shape.heads + at.head) * shape.tokens + at.block * kv_block_tokens;
}

void check_lengths(const KvFileShape& shape, const KvBlock& at, size_t vector_bytes,
                   size_t scales) {
  const int64_t tokens = shape.tokens_of_block(at.block);
  PECIA_CHECK(static_cast<int64_t>(vector_bytes) == tokens * shape.vector_bytes() &&
                  static_cast<int64_t>(scales) == (shape.has_scales() ? tokens : 0),
              "{} bytes and {} scales for {} tokens", vector_bytes, scales, tokens);
}

/// Checksum of the vectors, then of the scales. It depends on the index, so exchanged blocks are
/// also detected.
uint64_t checksum_of(int64_t stamp, int64_t index, std::span<const std::byte> vectors,
                     std::span<const float> scales) {
  Checksum sum(static_cast<uint64_t>(stamp) + static_cast<uint64_t>(index));
  sum.add(vectors);
  sum.add(std::as_bytes(scales));
  return sum.value();
}

std::string free_text(const fs::path& path) {
  std::error_code unknown;
  const fs::space_info space = fs::space(fs::absolute(path).parent_path(), unknown);
  return unknown ? "an unknown number" : std::to_string(space.available);
}

/// Reserves the bytes on the disk, where the file system can do that. Throws SystemError when there
/// is no room. Call it while HDF5 has no file open: HDF5 does not survive a file that it cannot
/// close for lack of room.
void take_room(const File& file, int64_t bytes) {
  const fs::path& path = file.path();
  const int failed = ::fallocate(file.descriptor(), 0, 0, bytes);
  const int error = failed != 0 ? errno : 0;
  std::error_code unknown;
  const fs::space_info space = fs::space(fs::absolute(path).parent_path(), unknown);
  const bool cannot_take = error == EOPNOTSUPP || error == ENOSYS;
  if (cannot_take && (unknown || static_cast<int64_t>(space.available) >= bytes)) return;
  if (error != 0)
    fail<SystemError>("{} needs {} bytes, {} are free: {}", path.string(), bytes, free_text(path),
                      errno_text(cannot_take ? ENOSPC : error));
}

}  // namespace

std::span<const KvSide> KvFileShape::sides_stored() const {
  static constexpr std::array all = {KvSide::keys, KvSide::values};
  PECIA_CHECK(sides == 1 || sides == 2, "a file of {} sides", sides);
  return std::span(all).first(sides);
}

int64_t KvFileShape::tokens_of_block(int64_t block) const {
  return std::min(kv_block_tokens, tokens - block * kv_block_tokens);
}

int64_t KvFileShape::payload_bytes() const {
  const int64_t vectors = product({sides, layers, heads, tokens, vector_bytes()});
  const int64_t scales = has_scales() ? product({sides, layers, heads, tokens, 4}) : 0;
  return vectors + scales + product({sides, layers, heads, blocks(), 8});
}

KvFileWriter::KvFileWriter(const fs::path& path, const KvFileShape& shape, int64_t stamp,
                           const std::string& request_id, const std::vector<KvPositions>& positions)
    : path_(path), part_{path.string() + ".part"}, shape_(shape), stamp_(stamp) {
  constexpr int64_t metadata_bytes = 1 << 16;
  const auto ranges = static_cast<int64_t>(positions.size());
  file_.emplace(File::make(part_.path, kv_mode));
  take_room(*file_, shape.payload_bytes() + product({3, ranges, 8}) + metadata_bytes);
  Hdf5File file = Hdf5File::create(*file_, Hdf5File::Format::checksummed);
  file.set_attribute("schema", std::string(schema));
  file.set_attribute("created_by", "pecia " + build_info().version + " " + build_info().commit);
  file.set_attribute("request_id", request_id);
  file.set_attribute("dtype", std::string(name_of(shape.dtype)));
  file.set_attribute("stamp", stamp);
  const auto place = [&](const char* name, hid_t type, const std::vector<int64_t>& extents) {
    return file.create_dataset(name, type, extents).offset().value_or(0);
  };
  file.create_dataset("/positions", H5T_STD_I64LE, {ranges, 3})
      .write(H5T_NATIVE_INT64, positions.data());
  for (const KvSide of : shape.sides_stored()) {
    const size_t side = index_of(of);
    offsets_.vectors[side] = place(vector_names[side], type_of(shape.dtype), vector_extents(shape));
    if (shape.has_scales())
      offsets_.scales[side] = place(scale_names[side], H5T_IEEE_F32LE, scale_extents(shape));
  }
  offsets_.checksums = place("/checksum", H5T_STD_U64LE, checksum_extents(shape));
  file.close();
  take_room(*file_, file_->size());
  checksums_.resize(shape.sides * shape.layers * shape.heads * shape.blocks());
  written_.resize(checksums_.size());
}

void KvFileWriter::write(const KvBlock& at, std::span<const std::byte> vectors,
                         std::span<const float> scales) {
  const int64_t index = index_of(shape_, at), first = first_token(shape_, at);
  check_lengths(shape_, at, vectors.size(), scales.size());
  const size_t side = index_of(at.side);
  file_->write_at(offsets_.vectors[side] + first * shape_.vector_bytes(), vectors);
  file_->write_at(offsets_.scales[side] + first * static_cast<int64_t>(sizeof(float)),
                  std::as_bytes(scales));
  checksums_[index] = checksum_of(stamp_, index, vectors, scales);
  written_[index] = true;
}

void KvFileWriter::finish() {
  PECIA_CHECK(std::find(written_.begin(), written_.end(), false) == written_.end(),
              "{}: a block was not written", part_.path.string());
  file_->write_at(offsets_.checksums, std::as_bytes(std::span(checksums_)));
  file_->sync_data();
  file_->rename_to(path_);
  file_.reset();
}

KvFileReader::KvFileReader(const fs::path& path, const KvFileShape& shape, int64_t stamp)
    : shape_(shape), stamp_(stamp), file_(File::open_input(path)) {
  const Hdf5File file = Hdf5File::open(file_);
  if (file.integer_attribute("stamp") != stamp)
    fail<InputError>("{} belongs to another save of keys and values", path.string());
  const int64_t file_bytes = file_.size();
  const auto place = [&](const char* name, int64_t element_bytes, std::vector<int64_t> extents) {
    const Hdf5Dataset dataset = file.dataset(name);
    const auto offset = dataset.offset();
    if (dataset.extents() != extents ||
        H5Tget_size(dataset.type()) != static_cast<size_t>(element_bytes))
      fail<InputError>("{} has another shape or type than was written", dataset.where());
    const int64_t bytes = dataset.elements() * element_bytes;
    if (bytes > 0 && (!offset || *offset < 0 || bytes > file_bytes - *offset))
      fail<InputError>("{} is not whole: the file ends after {} bytes", dataset.where(),
                       file_bytes);
    return offset.value_or(0);
  };
  for (const KvSide of : shape.sides_stored()) {
    const size_t side = index_of(of);
    offsets_.vectors[side] = place(vector_names[side], size_of(shape.dtype), vector_extents(shape));
    if (shape.has_scales())
      offsets_.scales[side] = place(scale_names[side], sizeof(float), scale_extents(shape));
  }
  offsets_.checksums = place("/checksum", sizeof(uint64_t), checksum_extents(shape));
  checksums_.resize(shape.sides * shape.layers * shape.heads * shape.blocks());
  file_.read_at(offsets_.checksums, std::as_writable_bytes(std::span(checksums_)));
}

void KvFileReader::read(const KvBlock& at, std::span<std::byte> vectors,
                        std::span<float> scales) const {
  const int64_t index = index_of(shape_, at), first = first_token(shape_, at);
  check_lengths(shape_, at, vectors.size(), scales.size());
  const size_t side = index_of(at.side);
  file_.read_at(offsets_.vectors[side] + first * shape_.vector_bytes(), vectors);
  file_.read_at(offsets_.scales[side] + first * static_cast<int64_t>(sizeof(float)),
                std::as_writable_bytes(scales));
  if (checksum_of(stamp_, index, vectors, scales) != checksums_[index])
    fail<InputError>(
        "{}: the checksum of tokens [{}, {}) of head {} in layer {} is wrong; the "
        "file is damaged",
        file_.path().string(), at.block * kv_block_tokens,
        at.block * kv_block_tokens + shape_.tokens_of_block(at.block), at.head, at.layer);
}

}  // namespace pecia::io
