// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A strip is up to 32 rows (queries × heads of a group) that meet the same keys. Its matrices are
/// transposed, so that each row has a lane of the vectors to itself:
///
///     scores  [32 keys, lanes]   K · Qᵀ of a chunk of 32 keys
///     weights [16, lanes, 2]     2^score in bf16; keys 2i and 2i + 1 lie side by side
///     out     [dims, lanes]      += Vᵀ · weights
///
/// No sum and no maximum crosses lanes, and keys are read as they lie in the cache. A strip has one
/// or two vectors of 16 lanes (kHalves).
///
/// **Exponentials.** Units are 1/128 of a power of two: score · scale · log2(e) · 128. The weight
/// 2^(score − maximum) is made from integers of 16 bits: the sum of its exponent and a fraction of 7
/// bits, read as bf16, is a straight line in place of 2^fraction, and a table of 64 bytes corrects
/// it (after N. Schraudolph, "A fast, compact approximation of the exponential function", 1999).
/// A weight is within 1 % of itself. Sums add the same rounded weights that multiply the values; so
/// the log-sum-exp of few keys may be off by as much.
///
/// **Maxima.** A maximum is a whole power of two, so raising it multiplies sums and out by a power
/// of two, which is exact. It is raised where a weight exceeds 2^8, not where any score exceeds it
/// (after T. Dao and others, FlashAttention-4, 2026). Unless weights underflow, a row's bits do not
/// depend on when it rises.
///
/// **Range.** Scores count up to ±most_units, 21,660 in nats; what is beyond counts as the bound. A
/// row all of whose scores are below it becomes NaN, and so does a row with NaN among its scores.

#include <array>
#include <cstdint>

namespace pecia::kernels::cpu {

inline constexpr int64_t half_lanes = 16;
inline constexpr int64_t strip_lanes = 2 * half_lanes;
inline constexpr int64_t chunk_keys = 32;
inline constexpr float power_units = 128;                 ///< of a power of two
inline constexpr float most_units = 4000000;              ///< a whole power of two
inline constexpr float no_maximum = -1e30f;               ///< of a row that has seen no key
inline constexpr uint16_t most_weight = (127 + 8) * 128;  ///< bits of 2^8

/// What is kept of a strip's rows while keys are added: out = Σ weight · v, sum = Σ weight.
struct StripRows {
  float* maxima;  ///< [strip_lanes], in units, or no_maximum
  float* sums;    ///< [strip_lanes]
  float* out;     ///< [dims, lanes]
  int64_t dims;   ///< a multiple of 32
};

/// Bit l of element k says whether lane l sees key k.
using Visible = std::array<uint32_t, chunk_keys>;

struct ChunkScores {
  float* scores;           ///< [32 keys, lanes]
  const float* scales;     ///< [32 keys], from scores to units
  const Visible* visible;  ///< null: every lane sees every key
};

/// Queries of bf16 [lanes, dims] become pairs [dims / 2, lanes, 2].
struct PackQueries {
  const uint16_t* rows;
  int64_t dims;  ///< a multiple of 32
  uint16_t* packed;
};

/// Up to 32 values of bf16 [keys, width] become columns [dims, 32 keys], with zeros where there are
/// no keys and no elements.
struct PackValues {
  const uint16_t* rows;
  int64_t keys, width, row_stride;
  int64_t dims;  ///< a multiple of 32
  uint16_t* packed;
  int64_t ahead;  ///< elements to the rows that are read next
};

/// scores[key, lane] = Σ_d keys[key, d] · queries[d, lane]
struct MultiplyChunk {
  const uint16_t* keys;  ///< [32 keys, dims], in bf16
  int64_t key_stride;
  const uint16_t* queries;  ///< of PackQueries
  int64_t dims;             ///< a multiple of 32
  float* scores;            ///< [32 keys, lanes], written
};

/// out[d, lane] += Σ_key values[d, key] · weights[key, lane]
struct AddChunks {
  const uint16_t* values;   ///< [chunks, dims, 32 keys], of PackValues
  const uint16_t* weights;  ///< [chunks, 16, lanes, 2]
  int64_t chunks, dims;
  float* out;  ///< [dims, lanes]
};

struct Positions {
  const int64_t* queries;  ///< [lanes]
  const int64_t* reaches;  ///< [lanes]; how many positions each sees, with its own; above 0
  const int64_t* keys;     ///< [num_keys]
  int64_t num_keys;
};

/// Rows of fp32 outside of a strip, one for each of the first `count` lanes.
struct RowsOfLanes {
  std::array<float*, strip_lanes> rows;
  int64_t count, width;  ///< at most the strip's lanes and dims
  const float* numbers;  ///< [count]
};

/// The steps of one or two halves that each lane takes alone.
struct LaneSteps {
  void (*pack)(const PackQueries&);
  /// Finds what each lane sees. Keys from num_keys on are not seen.
  void (*see)(const Positions&, Visible&);
  /// Bounds the scores to the range, and raises highest[lane] to the scores that are seen, in units.
  void (*find_highest)(const ChunkScores&, float* highest);
  /// Raises the maxima of some lanes to whole powers of two that `highest` does not exceed.
  void (*raise)(const float* highest, uint32_t lanes, const StripRows&);
  /// Writes the weights of keys that are seen, and 0 for the others, and adds them to sums[lane], one
  /// after the other. Returns the lanes with a weight that exceeds most_weight or is NaN.
  uint32_t (*weigh)(const ChunkScores&, const float* maxima, uint16_t* weights, float* sums);
  /// row[d] = out[d, lane] / number
  void (*write)(const StripRows&, const RowsOfLanes&);
  /// out[d, lane] = row[d] · number
  void (*read)(const StripRows&, const RowsOfLanes&);
};

/// All of them, and the two products.
struct StripSteps : LaneSteps {
  void (*multiply)(const MultiplyChunk&);
  void (*add)(const AddChunks&);
};

/// Instructions for strips, as a table.
struct StripKernel {
  StripSteps one_half, two_halves;
  void (*pack_values)(const PackValues&);
  /// A thread calls `begin` before `multiply` and `add`, and `end` afterwards.
  void (*begin)();
  void (*end)();

  const StripSteps& steps_for(int64_t rows) const {
    return rows > half_lanes ? two_halves : one_half;
  }
};

/// The vectors of this architecture for both products and the lanes. Requires has_native_bf16().
const StripKernel& vector_strips();
/// In plain C++, with the bits of AMX's products and AVX-512's lanes.
const StripKernel& twin_strips();

/// By how much 1 + f exceeds 2^f in units of 1/128, at f = (2i + 1/2) / 128.
struct ExcessOfLine {
  alignas(64) uint8_t bytes[64];
  ExcessOfLine();
};
const ExcessOfLine& excess_of_line();

/// A row's sum of weights, whose maximum is in units.
struct SumOfRow {
  float maximum, sum;

  bool empty() const { return maximum == no_maximum; }
  /// By what Σ weight · v is divided. A quotient, not a product, leaves the value of a single key.
  float divisor() const { return empty() ? 1.0f : sum; }
  float lse() const;
};
SumOfRow sum_of_lse(float lse);

/// By what scores are multiplied to become units.
float units_of_score(float scale);

/// The score whose weight is 1, in numbers of fp32 whose last bit is a unit.
inline constexpr float units_shift = 12582912.0f;  // 1.5 · 2^23
inline constexpr float weight_one = 127 * power_units;

}  // namespace pecia::kernels::cpu
