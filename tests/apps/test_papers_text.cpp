// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/pecia/papers_text.hpp"

namespace pecia::app {
namespace {

using testing::AllOf, testing::HasSubstr, testing::Not;

TEST(PapersText, HasEachFigureWithItsErrorAndWhatWasFitted) {
  std::vector<simulation::papers::Paper> papers{{.name = "P",
                                                 .title = "A Paper",
                                                 .machine = "a machine",
                                                 .constants = {{"share", "", 0.5, "a row", 0.25}},
                                                 .rows = {{.what = "TTFT",
                                                           .setting = "4 hosts",
                                                           .unit = "ms",
                                                           .published = 1000.0,
                                                           .ours = 1100.0,
                                                           .allowed = 0.15,
                                                           .fitted = true,
                                                           .note = "a note",
                                                           .command = "a command"}},
                                                 .claims = {{"it is so", true}}}};
  EXPECT_THAT(papers_text(papers),
              AllOf(HasSubstr("P: A Paper\n  a machine\n"), HasSubstr("TTFT *  4 hosts"),
                    HasSubstr("1000 ms"), HasSubstr("1100 ms"), HasSubstr("+10.0 %"),
                    HasSubstr("15 %"), HasSubstr("* share: 0.5, by a row; 25 % of that figure"),
                    HasSubstr("holds: it is so"), HasSubstr("note: a note (a command)")));
  simulation::papers::Row& row = papers[0].rows[0];
  row.published = 1, row.published_to = 2, row.unit = "";
  EXPECT_THAT(papers_text(papers), HasSubstr("1 to 2"));
  row.published.reset();
  EXPECT_THAT(papers_text(papers), AllOf(HasSubstr("not at hand"), Not(HasSubstr("+10.0"))));
}

}  // namespace
}  // namespace pecia::app
