// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/comm/transports.hpp"

namespace pecia::comm {
namespace {

TEST(Transports, AreTheMappedComponentsForMessages) {
  EXPECT_EQ(transports_in("7f00-7f01 r--p 0000 fe:00 1   /usr/lib/openmpi3/mca_pml_ob1.so\n"
                          "7f01-7f02 r-xp 0000 fe:00 1   /usr/lib/openmpi3/mca_pml_ob1.so\n"
                          "7f02-7f03 r--p 0000 fe:00 2   /usr/lib/openmpi3/mca_btl_vader.so\n"
                          "7f03-7f04 r--p 0000 fe:00 3   /usr/lib/openmpi3/mca_coll_tuned.so\n"
                          "7f04-7f05 r--p 0000 fe:00 4   /usr/lib/openmpi3/mca_btl_tcp.so.1\n"
                          "7f05-7f06 r--p 0000 fe:00 5   /tmp/mca_btl_none\n"),
            (std::vector<std::string>{"btl tcp", "btl vader", "pml ob1"}));
  EXPECT_TRUE(transports_in("").empty());
  EXPECT_TRUE(transports_in("7f05-7f06 r--p 0000 fe:00 5   /lib/mca_btl_").empty());
}

}  // namespace
}  // namespace pecia::comm
