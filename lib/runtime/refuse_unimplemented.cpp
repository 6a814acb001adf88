/// What the job language knows and this version does not do, refused by name.

#include "lib/core/error.hpp"
#include "lib/runtime/job.hpp"
#include "lib/runtime/resources.hpp"

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

  if (job.batch.arrivals == Arrivals::replay)
    refuse("batch.arrivals", "replay", "arrivals: ignore");
  if (job.reproducible == Reproducible::layout)
    refuse("reproducible", "layout", "reproducible: run");
}

void refuse_unexecuted(const Job& job, Resources& resources) {
  for (const auto& [key, degree] : {std::pair{"sp", resources.sp}, std::pair{"tp", resources.tp}})
    if (degree > 1)
      refuse(fmt::format("parallel.{}", key), std::to_string(degree),
             fmt::format("{}: 1, and cp for a sequence on more ranks", key));
  if (job.parallel.ring == RingMode::pass_q) refuse("parallel.ring", "pass_q", "ring: pass_kv");
  if (job.parallel.decode == DecodeMode::broadcast_q)
    refuse("parallel.decode", "broadcast_q", "decode: pass_q");
  if (job.batch.policy == Policy::chunked)
    refuse("batch.policy", "chunked", "policy: prefill_first");
  if (resources.cp == 1 || (resources.ring && job.parallel.decode)) return;
  resources.ring = RingMode::pass_kv;
  resources.decode = DecodeMode::pass_q;
  resources.why = "ring pass_kv and decode pass_q: the ones in this version";
}

}  // namespace pecia::runtime
