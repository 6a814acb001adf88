#include "lib/device/buffer.hpp"

#include <sys/mman.h>

namespace pecia::device {
namespace {
constexpr int64_t line_bytes = 64;
constexpr int64_t huge_page_bytes = 2 << 20;
}  // namespace

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  PECIA_CHECK(bytes >= 0, "a buffer of {} bytes", bytes);
  if (bytes == 0) return;
  const int64_t alignment = bytes >= 2 * huge_page_bytes ? huge_page_bytes : line_bytes;
  const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!data_) fail<SystemError>("out of memory: {} bytes could not be allocated", bytes);
  // Advice only: without transparent huge pages it changes nothing.
  if (alignment == huge_page_bytes) ::madvise(data_.get(), rounded, MADV_HUGEPAGE);
}

void Buffer::reserve(int64_t bytes) {
  if (bytes > bytes_) *this = Buffer(bytes);
}

TensorView Buffer::tensor(DType dtype, std::initializer_list<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(elements, extent, &elements))
      fail<InvalidArgument>("a tensor of more than 2^63 elements");
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, size_of(dtype), &bytes))
    fail<InvalidArgument>("a tensor of more than 2^63 bytes");
  reserve(bytes);
  return TensorView(data(), dtype, shape);
}

}  // namespace pecia::device
