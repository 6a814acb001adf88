#include <gtest/gtest.h>

#include "lib/core/error.hpp"
#include "lib/runtime/layout_rules.hpp"
#include "lib/runtime/resources.hpp"

namespace pecia::runtime {
namespace {

Job layout_job(const std::vector<std::string>& settings) {
  std::vector<std::string> all = {"reproducible=layout"};
  all.insert(all.end(), settings.begin(), settings.end());
  return parse_job("model: {path: m}\ninput: [p.h5]\noutput: o\n", "job.yaml", all);
}

std::string refusal(const Job& job) {
  try {
    check_layout_rules(job);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return "";
}

TEST(LayoutRules, TakeEveryRingThatDividesEight) {
  for (const char* cp : {"auto", "1", "2", "4", "8"})
    EXPECT_EQ(refusal(layout_job({std::string("parallel.cp=") + cp})), "") << cp;
}

TEST(LayoutRules, RefuseWhatWouldShowInTheBits) {
  EXPECT_EQ(refusal(layout_job({"parallel.cp=3"})),
            "parallel.cp: 3 with reproducible: layout is not in this version: 8 virtual ranks are "
            "shared out evenly; use cp: 1, 2, 4 or 8, and dp for more ranks");
  EXPECT_EQ(refusal(layout_job({"parallel.sp=2"})),
            "parallel.sp: 2 with reproducible: layout is not in this version: its cuts depend on "
            "the number of ranks; use sp: 1 and cp");
  EXPECT_EQ(refusal(layout_job({"parallel.tp=2"})),
            "parallel.tp: 2 with reproducible: layout is not in this version: its sums of partial "
            "products depend on the number of ranks; use tp: 1 and cp");
  EXPECT_EQ(
      refusal(layout_job({"batch.policy=chunked"})),
      "batch.policy: chunked with reproducible: layout is not in this version: where a prompt "
      "is cut depends on what else is in the batch; use policy: prefill_first");
}

TEST(LayoutRules, AreForTheModeAlone) {
  EXPECT_EQ(refusal(layout_job({"reproducible=run", "parallel.cp=3", "parallel.sp=2",
                                "parallel.tp=2", "batch.policy=chunked"})),
            "");
}

model::ModelConfig any_model() {
  model::ModelConfig config;
  config.vocab = 96, config.hidden = 64, config.ffn = 48, config.layers = 2;
  config.num_heads = 8, config.num_kv_heads = 4, config.head_dim = 8;
  return config;
}

TEST(LayoutRules, HoldForTheRanksStarted) {
  Resources resources;
  EXPECT_THROW(resolve_grid(layout_job({}), any_model(), 6, resources), Unsupported);
  resolve_grid(layout_job({"parallel.dp=3"}), any_model(), 6, resources);
  EXPECT_EQ(resources.cp, 2);
  resolve_grid(layout_job({"reproducible=run"}), any_model(), 6, resources);
  EXPECT_EQ(resources.cp, 6);
}

}  // namespace
}  // namespace pecia::runtime
