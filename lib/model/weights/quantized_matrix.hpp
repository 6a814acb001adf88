// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A matrix of a linear layer that a checkpoint stores as codes in any form but mxfp4
/// (quantization.hpp).

#include <string>
#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/base/device/thread_pool.hpp"
#include "lib/model/config/quantization.hpp"
#include "lib/model/weights/linear_weight.hpp"
#include "lib/model/weights/weight_loader.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::model {

class QuantizedMatrix {
 public:
  /// The matrix [out, in] of `module`. `loader` and `quantization` outlive this object. Throws InputError naming
  /// file and tensor where one is missing or of another shape or type.
  QuantizedMatrix(WeightLoader& loader, const std::string& module, int64_t out, int64_t in,
                  const StoredQuantization& quantization);

  /// Some rows and columns, without a bias, as the codes that StoredQuantization::code says.
  /// `columns` begins with a group. Codes of 8 bits outside of words are views of the file. The others
  /// are packed anew by the pool's threads, and their memory and that of scales is added to `memory`.
  LinearWeight::Part codes(parallel::RowRange rows, parallel::RowRange columns,
                           device::ThreadPool& pool, std::vector<device::Buffer>& memory) const;

  /// Blocks of rows, one after the other, as numbers of a type, rounded from fp32. Throws InputError
  /// naming the module and the row for a number that the type cannot hold.
  LinearWeight::Part numbers(const std::vector<parallel::RowRange>& rows,
                             parallel::RowRange columns, DType type, device::ThreadPool& pool,
                             std::vector<device::Buffer>& memory) const;

 private:
  /// number = least + code · step
  struct Scale {
    float step, least;
  };
  float step_of_bytes(int64_t row, int64_t column) const;
  LinearWeight::Part bytes(parallel::RowRange rows, parallel::RowRange columns,
                           std::vector<device::Buffer>& memory) const;
  LinearWeight::Part unpacked_bytes(parallel::RowRange rows, parallel::RowRange columns,
                                    device::ThreadPool& pool,
                                    std::vector<device::Buffer>& memory) const;
  int code_of(uint32_t word, int64_t place) const;
  int code(int64_t row, int64_t column) const;
  int64_t group_of(int64_t column) const;
  Scale scale(int64_t row, int64_t group) const;
  float number(int64_t row, int64_t column) const;
  void pack_row(int64_t row, parallel::RowRange columns, void* codes, float* scales) const;
  TensorView tensor(WeightLoader& loader, const std::string& name, DType type,
                    std::initializer_list<int64_t> shape) const;
  void read_scales_of_rows(WeightLoader& loader, const std::string& module);
  void read_nvfp4(WeightLoader& loader, const std::string& module);
  LinearWeight::Part blocks(parallel::RowRange rows, parallel::RowRange columns) const;
  void check_groups(WeightLoader& loader, const std::string& name) const;

  const WeightLoader& loader_;
  std::string module_;
  const StoredQuantization& quantization_;
  int64_t out_, in_;
  int64_t codes_of_word_;
  int64_t group_;   ///< numbers that share a scale
  int64_t groups_;  ///< of a row
  TensorView codes_, scales_, zeros_, group_of_;
  float factor_ = 1;  ///< of all numbers of nvfp4
};

}  // namespace pecia::model
