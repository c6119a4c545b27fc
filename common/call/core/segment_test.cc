// Shared arguments: regions come back, the pool is bounded, what was abandoned is not used again, and what a caller
// names is not trusted.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "common/call/core/segment_map.h"
#include "common/call/core/segment_pool.h"
#include "gtest/gtest.h"

namespace manta::call {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(Segments, AReaderSeesWhatTheWriterWrote) {
  SegmentPool pool({.segment_bytes = 4 * kMiB, .max_bytes = 8 * kMiB});
  SegmentMap map;
  const SegmentPool::Region region = pool.Allocate(100000).value();
  std::memset(region.data, 7, region.bytes);
  const SegmentMap::View view = map.Open(pool.Ref(region)).value();
  ASSERT_EQ(view.bytes.size(), 100000u);
  EXPECT_EQ(view.bytes.front(), std::byte{7});
  EXPECT_EQ(view.bytes.back(), std::byte{7});
  pool.Free(region);
  EXPECT_EQ(pool.Allocate(10).value().data, region.data) << "it is used again";
}

TEST(Segments, ThePoolIsBoundedAndItsHolesClose) {
  SegmentPool pool({.segment_bytes = 2 * kMiB, .max_bytes = 4 * kMiB});
  std::mt19937 random(5);
  std::vector<SegmentPool::Region> regions;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 2 == 0 || regions.empty()) {
      auto region = pool.Allocate(1 + random() % (500 << 10));
      if (region.ok()) {
        regions.push_back(*region);
      } else {
        EXPECT_EQ(region.status().code(), absl::StatusCode::kResourceExhausted);
      }
    } else {
      const size_t which = random() % regions.size();
      pool.Free(regions[which]);
      regions.erase(regions.begin() + which);
    }
    for (size_t a = 0; a + 1 < regions.size(); ++a) {  // neighbours in the list are enough of a sample
      const auto &x = regions[a], &y = regions[a + 1];
      EXPECT_TRUE(x.data + x.bytes <= y.data || y.data + y.bytes <= x.data);
    }
    EXPECT_LE(pool.bytes(), 4 * kMiB);
  }
  for (const auto& region : regions) pool.Free(region);
  EXPECT_TRUE(pool.Allocate(4 * kMiB).ok()) << "all is free again: a segment of this size fits";
  EXPECT_FALSE(pool.Allocate(1).ok());
}

TEST(Segments, WhatIsAbandonedIsNotUsedAgainAndItsReaderKeepsIt) {
  SegmentPool pool({.segment_bytes = kMiB, .max_bytes = 2 * kMiB});
  SegmentMap map;
  const auto first = pool.Allocate(1000).value(), second = pool.Allocate(1000).value();
  ASSERT_EQ(first.segment, second.segment);
  std::memset(first.data, 1, first.bytes);
  const SegmentMap::View view = map.Open(pool.Ref(first)).value();
  pool.Abandon(first);
  const auto third = pool.Allocate(1000).value();
  EXPECT_NE(third.segment, first.segment);
  pool.Free(second);
  EXPECT_EQ(view.bytes[999], std::byte{1}) << "the segment is unmapped here, not there";
  EXPECT_EQ(pool.bytes(), kMiB);
}

TEST(Segments, WhatACallerNamesIsNotTrusted) {
  SegmentPool pool({.segment_bytes = kMiB, .max_bytes = kMiB});
  SegmentMap map;
  const auto region = pool.Allocate(1000).value();
  const v1::ShmRef good = pool.Ref(region);
  const auto code = [&](auto change) {
    v1::ShmRef ref = good;
    change(ref);
    return map.Open(ref).status().code();
  };
  using C = absl::StatusCode;
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_length(2 * kMiB); }), C::kInvalidArgument);
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_offset(~uint64_t{0}); }), C::kInvalidArgument);
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_offset(1), r.set_length(~uint64_t{0}); }), C::kInvalidArgument);
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_pid(-1); }), C::kFailedPrecondition);
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_pid(1 << 30); }), C::kFailedPrecondition);
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_fd(-7); }), C::kFailedPrecondition);
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_fd(99999); }), C::kFailedPrecondition);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  EXPECT_EQ(code([&](v1::ShmRef& r) { r.set_fd(pipes[0]); }), C::kFailedPrecondition) << "a pipe";
  EXPECT_EQ(code([](v1::ShmRef& r) { r.set_segment(78); }), C::kFailedPrecondition) << "another segment";
  const int unsealed = memfd_create(SegmentName(77).c_str(), MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, 4096), 0);
  EXPECT_EQ(code([&](v1::ShmRef& r) { r.set_fd(unsealed), r.set_segment(77); }), C::kInvalidArgument)
      << "it could shrink";
  for (int fd : {pipes[0], pipes[1], unsealed}) close(fd);
  EXPECT_TRUE(map.Open(good).ok());
}

}  // namespace
}  // namespace manta::call
