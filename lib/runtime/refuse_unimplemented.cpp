/// What the job language knows and this version does not do, refused by name.

#include "lib/core/error.hpp"
#include "lib/runtime/job.hpp"
#include "lib/runtime/layout_rules.hpp"

namespace pecia::runtime {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view nearest) {
  fail<Unsupported>("{}: {} is not in this version; use {}", key, value, nearest);
}

}  // namespace

void refuse_unimplemented(const Job& job) {
  const Job::Parallel& parallel = job.parallel;
  if (parallel.sp > 1)
    refuse("parallel.sp", std::to_string(parallel.sp),
           "sp: 1, and cp for a sequence on more ranks");
  if (parallel.tp > 1)
    refuse("parallel.tp", std::to_string(parallel.tp),
           "tp: 1, and cp for a sequence on more ranks");
  if (parallel.prefill && parallel.prefill != PrefillMode::ring)
    refuse("parallel.prefill", name_of(*parallel.prefill), "prefill: ring");
  if (parallel.ring && parallel.ring != RingMode::pass_kv)
    refuse("parallel.ring", name_of(*parallel.ring), "ring: pass_kv");
  if (parallel.decode && parallel.decode != DecodeMode::pass_q)
    refuse("parallel.decode", name_of(*parallel.decode), "decode: pass_q");
  if (parallel.shift_threshold)
    refuse("parallel.shift_threshold", std::to_string(*parallel.shift_threshold),
           "shift_threshold: auto");

  if (job.backend == BackendKind::cuda) refuse("backend", "cuda", "backend: cpu");
  for (const Precision precision : {Precision::fp8, Precision::int8})
    if (job.model.dtype == precision) refuse("model.dtype", name_of(precision), "dtype: bf16");
  for (const Precision precision : {Precision::bf16, Precision::fp8})
    if (job.model.compute == precision)
      refuse("model.compute", name_of(precision), "compute: fp32");
  if (job.kv.dtype == Precision::fp8) refuse("kv.dtype", "fp8", "dtype: bf16");

  if (job.batch.policy == Policy::chunked)
    refuse("batch.policy", "chunked", "policy: prefill_first");
  if (job.batch.arrivals == Arrivals::replay)
    refuse("batch.arrivals", "replay", "arrivals: ignore");
  check_layout_rules(job);
}

}  // namespace pecia::runtime
