#include "common/base/random.h"

#include <cmath>

#include "gtest/gtest.h"

namespace manta {
namespace {

// The known-answer vectors of the paper's reference implementation.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, IsAFunctionOfItsIndex) {
  RandomStream a(7, 3);
  for (int i = 0; i < 100; ++i) a.NextU64();
  RandomStream b(7, 3, a.index());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.NextU64(), b.NextU64());
}

TEST(RandomStream, Moments) {
  RandomStream r(1);
  double uniform = 0, normal = 0, square = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    uniform += r.NextUniform();
    const double x = r.NextNormal();
    normal += x;
    square += x * x;
  }
  EXPECT_NEAR(uniform / n, 0.5, 0.01);
  EXPECT_NEAR(normal / n, 0.0, 0.02);
  EXPECT_NEAR(square / n, 1.0, 0.02);
}

TEST(RandomStream, BelowIsWithinBounds) {
  RandomStream r(2);
  for (uint64_t n : {uint64_t{1}, uint64_t{3}, uint64_t{1000}}) {
    for (int i = 0; i < 1000; ++i) EXPECT_LT(r.NextBelow(n), n);
  }
}

}  // namespace
}  // namespace manta
