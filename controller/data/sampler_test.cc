#include "controller/data/sampler.h"

#include <set>

#include "gtest/gtest.h"

namespace manta::controller {
namespace {

TEST(RowSampler, EveryRowOnceAnEpoch) {
  RowSampler sampler(10, 42, true);
  std::set<int64_t> seen;
  for (int i = 0; i < 5; ++i) {
    for (int64_t row : sampler.Next(2)) EXPECT_TRUE(seen.insert(row).second);
  }
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(sampler.position().epoch, 0);
  sampler.Next(2);
  EXPECT_EQ(sampler.position().epoch, 1);
}

TEST(RowSampler, GoesOnWhereItWas) {
  RowSampler whole(10, 7, true);
  for (int i = 0; i < 5; ++i) whole.Next(3);
  RowSampler resumed(10, 7, true, whole.position());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(whole.Next(3), resumed.Next(3));
}

TEST(RowSampler, WithoutShufflingInOrderAndTheRestDropped) {
  RowSampler sampler(5, 0, false);
  EXPECT_EQ(sampler.Next(3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(sampler.Next(3), (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace manta::controller
