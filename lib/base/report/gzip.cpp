// SPDX-License-Identifier: Apache-2.0
#include "lib/base/report/gzip.hpp"

#include <zlib.h>

#include <array>
#include <ostream>
#include <string_view>

#include "lib/base/core/error.hpp"

namespace pecia::report {
namespace {

constexpr size_t piece_bytes = 64 << 10;
constexpr int level = 3;              // traces repeat names and numbers, so little effort suffices
constexpr int gzip_window = 15 + 16;  // zlib's value for a gzip header

}  // namespace

struct GzipBuffer::State {
  z_stream stream{};
  std::array<char, piece_bytes> plain;
  std::array<char, piece_bytes> packed;
};

GzipBuffer::GzipBuffer(std::ostream& to) : to_(to), state_(std::make_unique<State>()) {
  constexpr int memory = 9;
  if (deflateInit2(&state_->stream, level, Z_DEFLATED, gzip_window, memory, Z_DEFAULT_STRATEGY) !=
      Z_OK)
    fail<SystemError>("out of memory: nothing can be packed");
  setp(state_->plain.data(), state_->plain.data() + state_->plain.size());
}

GzipBuffer::~GzipBuffer() {
  deflateEnd(&state_->stream);
}

void GzipBuffer::pack(bool last) {
  z_stream& stream = state_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(pbase());
  stream.avail_in = static_cast<uInt>(pptr() - pbase());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(state_->packed.data());
    stream.avail_out = static_cast<uInt>(state_->packed.size());
    const int result = deflate(&stream, last ? Z_FINISH : Z_NO_FLUSH);
    PECIA_CHECK(result != Z_STREAM_ERROR, "deflate: {}", result);
    to_.write(state_->packed.data(),
              static_cast<std::streamsize>(state_->packed.size() - stream.avail_out));
  } while (stream.avail_out == 0);
  setp(state_->plain.data(), state_->plain.data() + state_->plain.size());
}

GzipBuffer::int_type GzipBuffer::overflow(int_type byte) {
  pack(false);
  if (traits_type::eq_int_type(byte, traits_type::eof())) return traits_type::not_eof(byte);
  return sputc(traits_type::to_char_type(byte));
}

void GzipBuffer::finish() {
  pack(true);
}

struct GzipLines::State {
  gzFile file = nullptr;
  std::array<char, piece_bytes> piece;
  std::string_view left;  ///< unread part of the piece
};

GzipLines::GzipLines(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  state_->file = gzopen(path.c_str(), "rb");
}

GzipLines::~GzipLines() {
  if (state_->file != nullptr) gzclose(state_->file);
}

bool GzipLines::next(std::string& line) {
  line.clear();
  if (state_->file == nullptr) return false;
  for (;;) {
    const size_t end = state_->left.find('\n');
    line.append(state_->left.substr(0, end));
    if (end != std::string_view::npos) {
      state_->left.remove_prefix(end + 1);
      return true;
    }
    const int read = gzread(state_->file, state_->piece.data(), piece_bytes);
    if (read <= 0) return false;
    state_->left = {state_->piece.data(), static_cast<size_t>(read)};
  }
}

}  // namespace pecia::report
