#include "common/comm/weight_plan.h"

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/comm/hash64.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

// A parameter's elements are numbered; a slice's array holds the numbers of its elements.
std::vector<int32_t> SliceValues(const SliceSpec& slice, int32_t base) {
  std::vector<int32_t> whole(Box::Whole(slice.shape).Elements());
  std::iota(whole.begin(), whole.end(), base);
  std::vector<int32_t> values(slice.box().Elements(), -1);
  ForEachRun(Box::Whole(slice.shape), slice.box(),
             [&](int64_t from, int64_t to, int64_t n) { std::copy_n(whole.begin() + from, n, values.begin() + to); });
  return values;
}

// A random partition (or replication) of one parameter over ranks.
std::vector<SliceSpec> RandomSlices(RandomStream& random, const std::string& name, const std::vector<int64_t>& shape,
                                    std::vector<ShardTable>& tables) {
  const int ranks = static_cast<int>(tables.size());
  const int dim = shape.empty() ? -1 : static_cast<int>(random.NextBelow(shape.size() + 1)) - 1;
  std::vector<SliceSpec> slices;
  if (dim < 0) {
    for (int r = 0; r < ranks; ++r) {  // a random, non-empty set of ranks holds it whole
      if (r > 0 && random.NextBelow(2) == 0) continue;
      tables[r].push_back({name, v1::DTYPE_I32, shape, -1, 0, 0});
    }
    return slices;
  }
  int64_t begin = 0;
  for (int r = 0; r < ranks; ++r) {
    const int64_t end =
        r == ranks - 1 ? shape[dim] : begin + static_cast<int64_t>(random.NextBelow(shape[dim] - begin + 1));
    // Now and then a rank holds more than its part: overlapping holders are allowed.
    const int64_t lower = begin - static_cast<int64_t>(random.NextBelow(begin + 1) * random.NextBelow(2));
    tables[r].push_back({name, v1::DTYPE_I32, shape, dim, lower, end});
    begin = end;
  }
  return slices;
}

TEST(WeightPlan, AnyLayoutIsCoveredExactlyOnceFromAHolder) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomStream random(seed);
    std::vector<ShardTable> sources(1 + random.NextBelow(4)), destinations(1 + random.NextBelow(4));
    const int parameters = 1 + static_cast<int>(random.NextBelow(4));
    for (int p = 0; p < parameters; ++p) {
      std::vector<int64_t> shape(random.NextBelow(4));
      for (int64_t& extent : shape) extent = 1 + static_cast<int64_t>(random.NextBelow(7));
      RandomSlices(random, absl::StrCat("p", p), shape, sources);
      RandomSlices(random, absl::StrCat("p", p), shape, destinations);
    }
    const auto plan = PlanTransfers(sources, destinations);
    ASSERT_TRUE(plan.ok()) << plan.status();

    for (size_t r = 0; r < destinations.size(); ++r) {
      for (size_t i = 0; i < destinations[r].size(); ++i) {
        const SliceSpec& wanted = destinations[r][i];
        const int32_t base = 1000 * (wanted.name[1] - '0');
        std::vector<int32_t> received(wanted.box().Elements(), -1);
        for (const Transfer& t : *plan) {
          if (t.destination_rank != static_cast<int>(r) || t.destination_slice != static_cast<int>(i)) continue;
          const SliceSpec& held = sources[t.source_rank][t.source_slice];
          ASSERT_EQ(held.name, wanted.name);
          ASSERT_TRUE(held.box().Contains(t.box) && wanted.box().Contains(t.box));
          const std::vector<int32_t> from = SliceValues(held, base);
          CopyBox(held.box(), from.data(), wanted.box(), received.data(), t.box, 4,
                  [](void* to, const void* source, size_t bytes) {
                    for (size_t k = 0; k < bytes / 4; ++k)
                      ASSERT_EQ(static_cast<int32_t*>(to)[k], -1) << "written twice";
                    std::memcpy(to, source, bytes);
                  });
        }
        ASSERT_EQ(received, SliceValues(wanted, base));
      }
    }
  }
}

TEST(WeightPlan, SpreadsReplicasOverTheirHolders) {
  std::vector<ShardTable> sources(2), destinations(1);
  for (int p = 0; p < 10; ++p) {
    const SliceSpec slice{absl::StrCat("p", p), v1::DTYPE_BF16, {16, 16}, -1, 0, 0};
    sources[0].push_back(slice);
    sources[1].push_back(slice);
    destinations[0].push_back(slice);
  }
  const auto plan = PlanTransfers(sources, destinations);
  ASSERT_TRUE(plan.ok());
  int first = 0;
  for (const Transfer& t : *plan) first += t.source_rank == 0;
  EXPECT_EQ(plan->size(), 10u);
  EXPECT_EQ(first, 5);
}

TEST(WeightPlan, SaysWhatIsMissingOrDiffers) {
  const SliceSpec whole{"w", v1::DTYPE_F32, {4, 4}, -1, 0, 0};
  const SliceSpec half{"w", v1::DTYPE_F32, {4, 4}, 0, 0, 2};
  SliceSpec other_type = whole, other_shape = whole, other_name = whole, bad_range = half;
  other_type.dtype = v1::DTYPE_BF16;
  other_shape.shape = {4, 5};
  other_name.name = "v";
  bad_range.end = 5;
  using Tables = std::vector<ShardTable>;
  const auto status = [](const Tables& s, const Tables& d) { return PlanTransfers(s, d).status(); };
  EXPECT_TRUE(absl::IsNotFound(status({{half}}, {{whole}}))) << status({{half}}, {{whole}});
  EXPECT_TRUE(absl::IsNotFound(status({{other_name}}, {{whole}})));
  EXPECT_TRUE(absl::IsNotFound(status({{}}, {{whole}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{other_type}}, {{whole}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{other_shape}}, {{whole}})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({{bad_range}}, {{whole}})));
}

TEST(Hash64, DependsOnEveryByteAndNotOnThePieces) {
  std::vector<unsigned char> data(1000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 37);
  const uint64_t hash = Hash64::Of(data.data(), data.size());
  RandomStream random(3);
  for (int round = 0; round < 200; ++round) {
    Hash64 pieces;
    for (size_t at = 0; at < data.size();) {
      const size_t n = std::min<size_t>(data.size() - at, random.NextBelow(100));
      pieces.Update(data.data() + at, n);
      at += n;
    }
    ASSERT_EQ(pieces.Finish(), hash);
    const size_t place = random.NextBelow(data.size());
    data[place] ^= 1 << random.NextBelow(8);
    const uint64_t other = Hash64::Of(data.data(), data.size());
    ASSERT_NE(other, hash);
    data = std::vector<unsigned char>(data.size());
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 37);
  }
  EXPECT_NE(Hash64::Of(data.data(), 10), Hash64::Of(data.data(), 11));
  const unsigned char zeros[2] = {};
  EXPECT_NE(Hash64::Of(zeros, 1), Hash64::Of(zeros, 2));
}

}  // namespace
}  // namespace manta::comm
