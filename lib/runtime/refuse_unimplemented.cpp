/// What the job language knows and this version does not do, refused by name.

#include "lib/core/error.hpp"
#include "lib/runtime/job.hpp"

namespace pecia::runtime {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view nearest) {
  fail<Unsupported>("{}: {} is not in this version; use {}", key, value, nearest);
}

}  // namespace

void refuse_unimplemented(const Job& job) {
  if (job.backend == BackendKind::cuda) refuse("backend", "cuda", "backend: cpu");
  for (const Precision precision : {Precision::fp8, Precision::int8})
    if (job.model.dtype == precision) refuse("model.dtype", name_of(precision), "dtype: bf16");
  for (const Precision precision : {Precision::bf16, Precision::fp8})
    if (job.model.compute == precision)
      refuse("model.compute", name_of(precision), "compute: fp32");
  if (job.kv.dtype == Precision::fp8) refuse("kv.dtype", "fp8", "dtype: bf16");
  if (job.reproducible == Reproducible::layout && job.batch.policy == Policy::chunked)
    fail<Unsupported>(
        "batch.policy: chunked with reproducible: layout is not in this version: where a prompt is "
        "cut depends on what else is in the batch; use policy: prefill_first");
}

}  // namespace pecia::runtime
