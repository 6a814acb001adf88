// SPDX-License-Identifier: Apache-2.0
#include "lib/files/disk/sampled_hash.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/files/checkpoint/safetensors_header.hpp"
#include "lib/files/disk/file.hpp"
#include "lib/files/disk/mapped_file.hpp"
#include "lib/files/disk/sha256.hpp"

namespace pecia::io {
namespace {

constexpr int64_t sample_bytes = 4096;
constexpr int64_t most_bytes_of_ends = 32 << 20;  ///< of all tensors
constexpr int64_t least_sample_bytes = 64;
constexpr int64_t num_spaced = 2048;

struct WeightsFile {
  std::filesystem::path path;
  int64_t bytes = 0;
  std::vector<StoredTensor> tensors;
};

struct Sample {
  int64_t begin = 0, bytes = 0;
};

/// What is read of a file: the ends of its tensors, and a sample at every `stride` bytes.
std::vector<Sample> samples_of(const WeightsFile& file, int64_t end_bytes, int64_t stride) {
  std::vector<Sample> samples;
  for (const StoredTensor& tensor : file.tensors) {
    const int64_t count = std::min(end_bytes, tensor.end - tensor.begin);
    samples.push_back({tensor.begin, count});
    samples.push_back({tensor.end - count, count});
  }
  for (int64_t begin = 0; begin < file.bytes; begin += stride)
    samples.push_back({begin, std::min(sample_bytes, file.bytes - begin)});
  return samples;
}

}  // namespace

std::string sampled_sha256(const std::vector<std::filesystem::path>& paths) {
  std::vector<WeightsFile> files;
  int64_t num_tensors = 0, total_bytes = 0;
  for (const auto& path : paths) {
    const MappedFile mapped(path);
    files.push_back({path, std::ssize(mapped.bytes()), {}});
    files.back().tensors = read_safetensors_header(path, mapped.bytes());
    num_tensors += std::ssize(files.back().tensors);
    total_bytes += files.back().bytes;
  }
  const int64_t end_bytes = std::clamp(most_bytes_of_ends / (2 * std::max<int64_t>(num_tensors, 1)),
                                       least_sample_bytes, sample_bytes);
  const int64_t stride = std::max(sample_bytes, total_bytes / num_spaced);

  Sha256 hash;
  std::vector<std::byte> buffer(sample_bytes);
  for (const WeightsFile& described : files) {
    hash.update(fmt::format("{} {}\n", described.path.filename().string(), described.bytes));
    const File file = File::open_input(described.path);
    const std::vector<Sample> samples = samples_of(described, end_bytes, stride);
    // A file system far away answers many small reads at the same time sooner than in turn.
    for (const Sample& sample : samples) file.prefetch(sample.begin, sample.bytes);
    for (const Sample& sample : samples) {
      const auto part = std::span(buffer).first(sample.bytes);
      file.read_at(sample.begin, part);
      hash.update(part);
    }
  }
  return hash.hex();
}

}  // namespace pecia::io
