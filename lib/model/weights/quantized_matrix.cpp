// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/quantized_matrix.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"
#include "lib/model/weights/convert.hpp"
#include "lib/model/weights/stored_codes.hpp"

namespace pecia::model {
namespace {

using parallel::RowRange;

uint32_t word_at(const TensorView& words, int64_t index) {
  return words.as<uint32_t>()[index];
}

/// Where awq keeps output 8·c + i in a word.
int64_t place_of_awq(int64_t i) {
  return i % 2 == 0 ? i / 2 : 4 + i / 2;
}

/// Calls row(i) for `count` rows on the pool's threads.
template <typename Row>
void for_each_row(device::ThreadPool& pool, int64_t count, const Row& row) {
  constexpr int64_t rows_of_task =
      16;  // in gptq, the words of this number of rows are one cache line
  std::atomic<int64_t> next{0};
  pool.run(
      [&](int) {
        for (int64_t first; (first = next.fetch_add(rows_of_task)) < count;)
          for (int64_t i = first; i < std::min(count, first + rows_of_task); ++i) row(i);
      },
      [] {});
}

}  // namespace

TensorView QuantizedMatrix::tensor(WeightLoader& loader, const std::string& name, DType type,
                                   std::initializer_list<int64_t> shape) const {
  return loader.typed(name, type, shape);
}

QuantizedMatrix::QuantizedMatrix(WeightLoader& loader, const std::string& module, int64_t out,
                                 int64_t in, const StoredQuantization& quantization)
    : loader_(loader),
      module_(module),
      quantization_(quantization),
      out_(out),
      in_(in),
      codes_of_word_(32 / quantization.bits),
      group_(quantization.group > 0 ? quantization.group : in),
      groups_((in + group_ - 1) / group_) {
  const auto named = [&](const char* what) { return module + what; };
  const int64_t words_in = (in + codes_of_word_ - 1) / codes_of_word_;
  const int64_t words_out = (out + codes_of_word_ - 1) / codes_of_word_;
  switch (quantization.form) {
    case StoredForm::mxfp4:
      fail<InvalidArgument>("{} as a coded matrix", module);
    case StoredForm::gptq:
      codes_ = tensor(loader, named(".qweight"), DType::int32, {words_in, out});
      zeros_ = tensor(loader, named(".qzeros"), DType::int32, {groups_, words_out});
      scales_ = loader.tensor(named(".scales"), {groups_, out});
      group_of_ = tensor(loader, named(".g_idx"), DType::int32, {in});
      check_groups(loader, named(".g_idx"));
      return;
    case StoredForm::awq:
      codes_ = tensor(loader, named(".qweight"), DType::int32, {in, words_out});
      zeros_ = tensor(loader, named(".qzeros"), DType::int32, {groups_, words_out});
      scales_ = loader.tensor(named(".scales"), {groups_, out});
      return;
    case StoredForm::packed:
      codes_ = tensor(loader, named(".weight_packed"), DType::int32, {out, words_in});
      scales_ = loader.tensor(named(".weight_scale"), {out, groups_});
      if (quantization.zeros)
        zeros_ = tensor(loader, named(".weight_zero_point"), DType::int32, {words_out, groups_});
      loader.ignore(named(".weight_shape"));
      if (!quantization.reordered) return;
      group_of_ = tensor(loader, named(".weight_g_idx"), DType::int32, {in});
      check_groups(loader, named(".weight_g_idx"));
      return;
    case StoredForm::int8:
      codes_ = tensor(loader, named(".weight"), DType::int8, {out, in});
      read_scales_of_rows(loader, module);
      return;
    case StoredForm::fp8:
      codes_ = tensor(loader, named(".weight"), DType::fp8, {out, in});
      read_scales_of_rows(loader, module);
      return;
    case StoredForm::nvfp4:
      read_nvfp4(loader, module);
      return;
  }
}

void QuantizedMatrix::read_nvfp4(WeightLoader& loader, const std::string& module) {
  const bool modelopt = quantization_.by_modelopt;
  if (in_ % nvfp4_block != 0)
    fail<InputError>("{}: '{}' has rows of {} numbers, which are no whole groups of {}",
                     loader.folder(), module, in_, nvfp4_block);
  const TensorView bytes = tensor(loader, module + (modelopt ? ".weight" : ".weight_packed"),
                                  DType::uint8, {out_, in_ / 2});
  codes_ = TensorView(bytes.data(), DType::nvfp4, {out_, groups_});
  scales_ = tensor(loader, module + ".weight_scale", DType::fp8, {out_, groups_});
  const std::string factor = module + (modelopt ? ".weight_scale_2" : ".weight_global_scale");
  const TensorView stored =
      loader.has_shape(factor, {}) ? loader.tensor(factor, {}) : loader.tensor(factor, {1});
  const float scale = load_as_float(stored.data(), stored.dtype(), 0);
  factor_ = modelopt ? scale : 1 / scale;
  if (!std::isfinite(factor_))
    fail<InputError>(
        "{}: tensor '{}' holds {}, which is no factor of numbers; download the file again",
        loader.file_of(factor), factor, scale);
  for (const char* other : {".input_scale", ".input_global_scale", ".k_scale", ".v_scale"})
    loader.ignore(module + other);
}

/// One scale of the matrix, of each row, or of each block.
void QuantizedMatrix::read_scales_of_rows(WeightLoader& loader, const std::string& module) {
  const std::string inverse = module + ".weight_scale_inv";
  const std::string name = loader.contains(inverse) ? inverse : module + ".weight_scale";
  for (const char* other : {".input_scale", ".activation_scale", ".weight_zero_point"})
    loader.ignore(module + other);
  const int64_t rows = quantization_.block_rows, columns = quantization_.block_columns;
  if (rows > 0) {
    scales_ = loader.tensor(name, {(out_ + rows - 1) / rows, (in_ + columns - 1) / columns});
  } else if (loader.has_shape(name, {})) {
    scales_ = loader.tensor(name, {}).reshape({1});
  } else if (loader.has_shape(name, {1})) {
    scales_ = loader.tensor(name, {1});
  } else {
    scales_ = loader.tensor(name, {out_, 1});
  }
}

void QuantizedMatrix::check_groups(WeightLoader& loader, const std::string& name) const {
  const auto* const groups = group_of_.as<int32_t>();
  for (int64_t i = 0; i < in_; ++i) {
    if (groups[i] < 0 || groups[i] >= groups_)
      fail<InputError>("{}: tensor '{}' holds {} at element {}, but there are {} groups",
                       loader.file_of(name), name, groups[i], i, groups_);
    if (!quantization_.reordered && groups[i] != i / group_)
      fail<InputError>(
          "{}: tensor '{}' holds {} at element {}, but without desc_act in config.json it must be "
          "{}",
          loader.file_of(name), name, groups[i], i, i / group_);
  }
}

int QuantizedMatrix::code_of(uint32_t word, int64_t place) const {
  const int bits = quantization_.bits;
  return static_cast<int>(word >> (bits * place) & ((1u << bits) - 1));
}

int QuantizedMatrix::code(int64_t row, int64_t column) const {
  const int64_t width = codes_.size(1);
  switch (quantization_.form) {
    case StoredForm::gptq:
      return code_of(word_at(codes_, column / codes_of_word_ * width + row),
                     column % codes_of_word_);
    case StoredForm::awq:
      return code_of(word_at(codes_, column * width + row / codes_of_word_),
                     place_of_awq(row % codes_of_word_));
    case StoredForm::packed:
      return code_of(word_at(codes_, row * width + column / codes_of_word_),
                     column % codes_of_word_);
    case StoredForm::mxfp4:
    case StoredForm::int8:
    case StoredForm::fp8:
    case StoredForm::nvfp4:
      break;
  }
  fail<InvalidArgument>("codes in words of {}", quantization_.name());
}

int64_t QuantizedMatrix::group_of(int64_t column) const {
  return group_of_ ? group_of_.as<int32_t>()[column] : column / group_;
}

QuantizedMatrix::Scale QuantizedMatrix::scale(int64_t row, int64_t group) const {
  const bool by_row = quantization_.form == StoredForm::packed;
  const int64_t index = by_row ? row * groups_ + group : group * out_ + row;
  const float step = load_as_float(scales_.data(), scales_.dtype(), index);
  const int codes = 1 << quantization_.bits;
  int zero = codes / 2;
  if (zeros_) {
    const int64_t word = row / codes_of_word_, place = row % codes_of_word_;
    zero = by_row ? code_of(word_at(zeros_, word * groups_ + group), place)
                  : code_of(word_at(zeros_, group * zeros_.size(1) + word),
                            quantization_.form == StoredForm::awq ? place_of_awq(place) : place);
  }
  // Zeros are stored less one: the largest code there is −1, and its zero is 0.
  if (quantization_.zeros_less_one) zero = (zero + 1) % codes;
  return {step, -static_cast<float>(zero) * step};
}

/// The scale of a number of int8 or fp8.
float QuantizedMatrix::step_of_bytes(int64_t row, int64_t column) const {
  const int64_t index =
      quantization_.block_rows > 0
          ? row / quantization_.block_rows * scales_.size(1) + column / quantization_.block_columns
      : scales_.rows() == 1 ? 0
                            : row;
  return load_as_float(scales_.data(), scales_.dtype(), index);
}

float QuantizedMatrix::number(int64_t row, int64_t column) const {
  if (quantization_.form == StoredForm::nvfp4)
    return factor_ * load_number(codes_.row(row), DType::nvfp4, scales_.row(row), column);
  if (quantization_.form == StoredForm::int8 || quantization_.form == StoredForm::fp8) {
    const float factor = step_of_bytes(row, column);
    return load_number(codes_.row(row), codes_.dtype(), &factor, column);
  }
  const Scale of_group = scale(row, group_of(column));
  return of_group.least + static_cast<float>(code(row, column)) * of_group.step;
}

void QuantizedMatrix::pack_row(int64_t row, RowRange columns, void* codes, float* scales) const {
  const int64_t elements = row_elements(DType::int4, columns.size());
  const int64_t shared_by = quantization_.shared_by();
  auto* const words = static_cast<uint16_t*>(codes);
  std::fill_n(words, elements * (size_of(DType::int4) / 2), uint16_t{0});
  for (int64_t i = 0; i < columns.size(); ++i) {
    const int64_t word = i / int4_group * 32 + i % 32, place = i % int4_group / 32;
    words[word] |= static_cast<uint16_t>(code(row, columns.begin + i) << (4 * place));
  }
  std::fill_n(scales, row_scales(DType::int4, columns.size(), shared_by), 0.0f);
  for (int64_t i = 0; i < columns.size(); i += shared_by, scales += 2) {
    const Scale of_group = scale(row, (columns.begin + i) / group_);
    scales[0] = of_group.step, scales[1] = of_group.least;
  }
}

/// A view of codes of 8 bits, with scales that are written anew for each row.
LinearWeight::Part QuantizedMatrix::bytes(RowRange rows, RowRange columns,
                                          std::vector<device::Buffer>& memory) const {
  const bool fp8 = quantization_.form == StoredForm::fp8;
  const int64_t each = fp8 ? stored_fp8_scales(quantization_, columns.size()) : 1;
  float* const scales = memory.emplace_back(rows.size() * each * size_of(DType::fp32)).as<float>();
  for (int64_t i = 0; i < rows.size(); ++i)
    for (int64_t j = 0; j < each; ++j)
      scales[i * each + j] = step_of_bytes(rows.begin + i, columns.begin + j * fp8_block);
  return {codes_.slice_rows(rows.begin, rows.size()).slice_columns(columns.begin, columns.size()),
          TensorView(),
          fp8 ? TensorView(scales, DType::fp32, {rows.size(), each})
              : TensorView(scales, DType::fp32, {rows.size()})};
}

/// Codes of 8 bits out of words, whose zero is 128 there, with one scale for each row.
LinearWeight::Part QuantizedMatrix::unpacked_bytes(RowRange rows, RowRange columns,
                                                   device::ThreadPool& pool,
                                                   std::vector<device::Buffer>& memory) const {
  auto* const made = memory.emplace_back(rows.size() * columns.size()).as<int8_t>();
  float* const scales = memory.emplace_back(rows.size() * size_of(DType::fp32)).as<float>();
  for_each_row(pool, rows.size(), [&](int64_t i) {
    for (int64_t j = 0; j < columns.size(); ++j)
      made[i * columns.size() + j] =
          static_cast<int8_t>(code(rows.begin + i, columns.begin + j) - 128);
    scales[i] = scale(rows.begin + i, 0).step;
  });
  return {TensorView(made, DType::int8, {rows.size(), columns.size()}), TensorView(),
          TensorView(scales, DType::fp32, {rows.size()})};
}

/// A view of whole blocks of nvfp4.
LinearWeight::Part QuantizedMatrix::blocks(RowRange rows, RowRange columns) const {
  const auto of_rows = [&](const TensorView& tensor) {
    return tensor.slice_rows(rows.begin, rows.size());
  };
  return LinearWeight::Part{of_rows(codes_), {}, of_rows(scales_), factor_}.columns(columns.begin,
                                                                                    columns.size());
}

LinearWeight::Part QuantizedMatrix::codes(RowRange rows, RowRange columns, device::ThreadPool& pool,
                                          std::vector<device::Buffer>& memory) const {
  if (quantization_.form == StoredForm::int8 || quantization_.form == StoredForm::fp8)
    return bytes(rows, columns, memory);
  if (quantization_.form == StoredForm::nvfp4) return blocks(rows, columns);
  if (quantization_.bits == 8) return unpacked_bytes(rows, columns, pool, memory);
  const int64_t elements = row_elements(DType::int4, columns.size());
  const int64_t of_row = row_scales(DType::int4, columns.size(), quantization_.shared_by());
  std::byte* const made =
      memory.emplace_back(rows.size() * elements * size_of(DType::int4)).as<std::byte>();
  float* const scales =
      memory.emplace_back(rows.size() * of_row * size_of(DType::fp32)).as<float>();
  for_each_row(pool, rows.size(), [&](int64_t i) {
    pack_row(rows.begin + i, columns, made + i * elements * size_of(DType::int4),
             scales + i * of_row);
  });
  return {TensorView(made, DType::int4, {rows.size(), elements}), TensorView(),
          TensorView(scales, DType::fp32, {rows.size(), of_row})};
}

LinearWeight::Part QuantizedMatrix::numbers(const std::vector<RowRange>& rows, RowRange columns,
                                            DType type, device::ThreadPool& pool,
                                            std::vector<device::Buffer>& memory) const {
  const int64_t row_size = columns.size() * size_of(type);
  int64_t count = 0;
  for (const RowRange& block : rows) count += block.size();
  std::byte* const made = memory.emplace_back(count * row_size).as<std::byte>();
  std::byte* to = made;
  for (const RowRange& block : rows) {
    for_each_row(pool, block.size(), [&](int64_t i) {
      for (int64_t column = 0; column < columns.size(); ++column)
        store_from_float(to + i * row_size, type, column,
                         number(block.begin + i, columns.begin + column));
    });
    const TensorView written(to, type, {block.size(), columns.size()});
    if (const auto index = first_not_finite(written, 0, written.elements(), pool))
      fail<InputError>(
          "{}: the numbers of '{}' hold {} in row {}, which {} cannot hold; download the file "
          "again, or choose another model.dtype",
          loader_.folder(), module_, load_as_float(to, type, *index),
          block.begin + *index / columns.size(), name_of(type));
    to += block.size() * row_size;
  }
  return {TensorView(made, type, {count, columns.size()}), TensorView()};
}

}  // namespace pecia::model
