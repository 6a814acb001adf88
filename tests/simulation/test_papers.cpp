// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/simulation/papers/decode_parts.hpp"
#include "lib/simulation/papers/goodput.hpp"
#include "lib/simulation/papers/machine.hpp"
#include "lib/simulation/papers/measured_figures.hpp"
#include "lib/simulation/papers/paper.hpp"

namespace pecia::simulation::papers {
namespace {

using testing::AllOf, testing::ElementsAre, testing::HasSubstr, testing::IsEmpty;

std::vector<Paper> papers_with(const Row& row) {
  return {{.name = "P", .title = "A Paper", .machine = "a machine", .rows = {row}}};
}

TEST(Papers, SayWhatIsOffByMoreThanItMay) {
  const Row within{
      .what = "TTFT", .setting = "4 hosts", .published = 100.0, .ours = 109.0, .allowed = 0.1};
  EXPECT_THAT(wrong(papers_with(within)), IsEmpty());
  for (const double ours : {111.0, 89.0, std::nan("")}) {
    Row row = within;
    row.ours = ours;
    EXPECT_THAT(wrong(papers_with(row)),
                ElementsAre(AllOf(HasSubstr("P: TTFT"), HasSubstr("10 % may be"))))
        << ours;
    row.allowed.reset();
    EXPECT_THAT(wrong(papers_with(row)), IsEmpty()) << "nothing is asserted";
  }
  Row alone = within;
  alone.published.reset();
  EXPECT_FALSE(alone.error());
  EXPECT_THAT(wrong(papers_with(alone)), IsEmpty());
  std::vector<Paper> papers = papers_with(within);
  papers[0].claims = {{"it is so", true}, {"it is not so", false}};
  EXPECT_THAT(wrong(papers), ElementsAre("P: does not hold: it is not so"));
}

TEST(Papers, MeasureErrorsFromTheNearerEndOfARange) {
  Row row{
      .what = "share", .setting = "4 hosts", .published = 2.0, .ours = 3.0, .published_to = 4.0};
  EXPECT_EQ(row.error(), 0.0);
  row.ours = 1.0;
  EXPECT_DOUBLE_EQ(*row.error(), -0.5);
  row.ours = 5.0;
  EXPECT_DOUBLE_EQ(*row.error(), 0.25);
}

TEST(Papers, AreJson) {
  const Row row{.what = "TTFT",
                .setting = "4 hosts",
                .unit = "ms",
                .published = 1000.0,
                .ours = 1100.0 + 1e-9,
                .allowed = 0.15,
                .fitted = true,
                .note = "a note",
                .plot = "times",
                .line = "ring",
                .x = 4};
  std::vector<Paper> papers = papers_with(row);
  papers[0].constants = {{"share", "", 0.5, "a row", 0.25}};
  const nlohmann::ordered_json json = to_json(papers);
  EXPECT_EQ(json["schema"], "pecia.papers/1");
  EXPECT_EQ(json["papers"][0]["rows"][0]["ours"], 1100.0) << "six digits";
  EXPECT_EQ(json["papers"][0]["rows"][0]["error"], 0.1);
  EXPECT_EQ(json["papers"][0]["rows"][0]["plot"]["line"], "ring");
  EXPECT_EQ(json["papers"][0]["rows"][0]["published_to"], nullptr);
  EXPECT_EQ(json["papers"][0]["constants"][0]["largest_share"], 0.25);
}

/// Figures that were measured say where, and stand on their page as they are here.
TEST(Papers, MarkWhatWasMeasured) {
  for (const MeasuredFigure& figure : measured_figures()) {
    const Row& row = figure.row;
    SCOPED_TRACE(row.what + ", " + row.setting);
    EXPECT_EQ(row.how, How::measured);
    EXPECT_FALSE(row.allowed) << "other sizes than the paper's";
    EXPECT_FALSE(row.command.empty() || row.note.empty());
    std::ifstream file(std::filesystem::path(PECIA_SOURCE_DIR) / row.page);
    std::stringstream text;
    text << file.rdbuf();
    const std::string page = text.str();
    const std::string commit = row.measured_on.substr(row.measured_on.rfind(' ') + 1);
    EXPECT_THAT(page, HasSubstr(commit));
    EXPECT_FALSE(figure.stands.empty());
    for (const char* number : figure.stands) EXPECT_THAT(page, HasSubstr(number));
  }
  Paper paper;
  paper.name = "Shift";
  add_measured(paper);
  EXPECT_EQ(paper.rows.size(), 3u);
  const nlohmann::ordered_json json = to_json({paper});
  EXPECT_THAT(json["papers"][0]["rows"][0]["measured_on"].get<std::string>(), HasSubstr("Zen 5"));
  EXPECT_EQ(json["papers"][0]["rows"][0]["how"], "measured");
}

/// A ring's queries travel one by one, so twice the instances have three times the messages.
TEST(Papers, PartsOfADecodeStepAreThoseOfItsRing) {
  Machine machine("llama-3-8b", cluster_files::cluster_of("h100-gtt"));
  const auto parts = [&](int cp) {
    return decode_parts(machine.costs(), {.kind = schedule::PassKind::decode,
                                          .degrees = {cp, 1, 8},
                                          .ring = parallel::AttentionExchange::pass_q,
                                          .cached = 32'000});
  };
  const StepParts one = parts(1), two = parts(2), four = parts(4);
  EXPECT_EQ(one.send_receive_us, 0);
  EXPECT_GT(one.op_us, two.op_us) << "half of the keys";
  const double message_us = machine.cluster().links[1].us;
  EXPECT_NEAR(two.send_receive_us, message_us, 0.1 * message_us);
  EXPECT_NEAR(four.send_receive_us, 3 * message_us, 0.15 * 3 * message_us);
  EXPECT_GT(two.all_to_all_us, message_us + *machine.cluster().links[1].exchange_us);
  EXPECT_EQ(two.largest(), 2);
}

TEST(Goodput, IsTheHighestRateThatServesEnough) {
  const auto at = [](double limit) {
    return [=](double rate) { return Served{.share = rate <= limit ? 1.0 : 0.5}; };
  };
  EXPECT_NEAR(goodput(at(3), 0.9), 3, 0.02 * 3);
  EXPECT_EQ(goodput(at(0.001), 0.9), 0);
}

}  // namespace
}  // namespace pecia::simulation::papers
