#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/comm/group_for_test.h"
#include "common/comm/reduce.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

using Transport = CpuCollectiveOptions::Transport;

void ExpectAllOk(const std::vector<absl::Status>& statuses) {
  for (size_t r = 0; r < statuses.size(); ++r) EXPECT_TRUE(statuses[r].ok()) << "rank " << r << ": " << statuses[r];
}

// What rank `rank` brings to case `seed`: values of many magnitudes, so that another order of summation would show.
std::vector<float> Contribution(uint64_t seed, int rank, size_t count) {
  uint32_t state = static_cast<uint32_t>(seed * 7919 + rank + 1);
  std::vector<float> values(count);
  for (float& v : values) {
    state = state * 1664525 + 1013904223;
    const uint32_t bits = (state & 0x80ffffff) | ((100 + (state >> 8) % 54) << 23 & 0x7f800000);
    std::memcpy(&v, &bits, sizeof(v));
  }
  return values;
}

// The single-process result: summed from rank 0 upwards.
std::vector<float> Reference(uint64_t seed, int size, size_t count, ReduceOp op) {
  std::vector<float> total = Contribution(seed, 0, count);
  for (int r = 1; r < size; ++r) {
    const std::vector<float> next = Contribution(seed, r, count);
    for (size_t i = 0; i < count; ++i)
      total[i] = op == ReduceOp::kSum ? total[i] + next[i] : std::max(total[i], next[i]);
  }
  return total;
}

bool SameBits(const std::vector<float>& a, const float* b) {
  return std::memcmp(a.data(), b, a.size() * 4) == 0;
}

struct Case {
  int size;
  Transport transport;
};

class CollectiveTest : public ::testing::TestWithParam<Case> {
 protected:
  int size() const { return GetParam().size; }
  std::vector<absl::Status> Run(const std::function<absl::Status(Collective&)>& body,
                                absl::Duration timeout = absl::Seconds(20)) {
    return RunGroupForTest(size(), GetParam().transport, body, timeout);
  }
};

// Sizes around the edges of every piece that an implementation cuts an array into, and random ones between.
std::vector<size_t> Sizes() {
  std::vector<size_t> sizes = {0, 1, 2, 3, 7, 1023, 2047, 2048, 2049, 4096, 4097, 131071, 131072, 131073, 262145};
  RandomStream random(77);
  for (int i = 0; i < 8; ++i) sizes.push_back(random.NextBelow(1 + (size_t{1} << random.NextBelow(18))));
  return sizes;
}

TEST_P(CollectiveTest, AllReduceIsTheSumInRankOrderBitForBit) {
  ExpectAllOk(Run([&](Collective& c) -> absl::Status {
    for (const size_t count : Sizes()) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        std::vector<float> data = Contribution(count, c.rank(), count);
        MANTA_RETURN_IF_ERROR(c.AllReduce(data.data(), count, DataType::kF32, op));
        if (!SameBits(Reference(count, c.size(), count, op), data.data())) {
          return absl::DataLossError(absl::StrCat(count, " elements differ"));
        }
      }
    }
    return absl::OkStatus();
  }));
}

TEST_P(CollectiveTest, ReduceScatterAndAllGatherMakeAnAllReduce) {
  ExpectAllOk(Run([&](Collective& c) -> absl::Status {
    for (const size_t count : Sizes()) {
      std::vector<float> data = Contribution(count, c.rank(), count * c.size());
      const std::vector<float> expected = Reference(count, c.size(), count * c.size(), ReduceOp::kSum);
      std::vector<float> part(count + 1, 42), whole(count * c.size());
      MANTA_RETURN_IF_ERROR(c.ReduceScatter(data.data(), count, part.data(), DataType::kF32, ReduceOp::kSum));
      if (part[count] != 42) return absl::DataLossError("wrote behind its part");
      MANTA_RETURN_IF_ERROR(c.AllGather(part.data(), count * 4, whole.data()));
      if (!SameBits(expected, whole.data())) return absl::DataLossError(absl::StrCat(count, " elements differ"));
    }
    return absl::OkStatus();
  }));
}

TEST_P(CollectiveTest, BroadcastFromEveryRoot) {
  ExpectAllOk(Run([&](Collective& c) -> absl::Status {
    for (const size_t count : Sizes()) {
      for (int root = 0; root < c.size(); ++root) {
        std::vector<float> data = Contribution(count, c.rank(), count);
        MANTA_RETURN_IF_ERROR(c.Broadcast(data.data(), count * 4, root));
        if (!SameBits(Contribution(count, root, count), data.data())) return absl::DataLossError("differs");
      }
    }
    return c.Barrier();
  }));
}

TEST_P(CollectiveTest, SendAndReceiveAroundARing) {
  ExpectAllOk(Run([&](Collective& c) -> absl::Status {
    const int next = (c.rank() + 1) % c.size(), previous = (c.rank() + c.size() - 1) % c.size();
    for (const size_t count : Sizes()) {
      std::vector<float> mine = Contribution(count, c.rank(), count), theirs(count);
      // Larger than any buffer between: who is even sends first.
      for (const bool send : {c.rank() % 2 == 0, c.rank() % 2 != 0}) {
        if (send) {
          MANTA_RETURN_IF_ERROR(c.Send(mine.data(), count * 4, next));
        } else {
          MANTA_RETURN_IF_ERROR(c.Recv(theirs.data(), count * 4, previous));
        }
      }
      if (!SameBits(Contribution(count, previous, count), theirs.data())) return absl::DataLossError("differs");
      double one = 1;
      MANTA_RETURN_IF_ERROR(c.AllReduceSum(absl::MakeSpan(&one, 1)));
      if (one != c.size()) return absl::DataLossError("a collective among the messages differs");
    }
    return absl::OkStatus();
  }));
}

TEST_P(CollectiveTest, OtherTypes) {
  ExpectAllOk(Run([&](Collective& c) -> absl::Status {
    std::vector<int64_t> integers = {c.rank(), int64_t{1} << 60, -c.rank()};
    MANTA_RETURN_IF_ERROR(c.AllReduce(integers.data(), 2, DataType::kI64, ReduceOp::kMax));
    EXPECT_EQ(integers, (std::vector<int64_t>{c.size() - 1, int64_t{1} << 60, -c.rank()}));
    std::vector<uint16_t> halves(5000, 0x3f80);  // 1.0
    MANTA_RETURN_IF_ERROR(c.AllReduce(halves.data(), halves.size(), DataType::kBF16, ReduceOp::kSum));
    const float sum = static_cast<float>(c.size());
    uint32_t bits;
    std::memcpy(&bits, &sum, 4);
    EXPECT_EQ(halves.back(), bits >> 16);
    float maximum = c.rank() == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    MANTA_RETURN_IF_ERROR(c.AllReduceMax(absl::MakeSpan(&maximum, 1)));
    EXPECT_TRUE(std::isnan(maximum));
    return absl::OkStatus();
  }));
}

TEST_P(CollectiveTest, RanksThatDisagreeAreToldSo) {
  const std::vector<absl::Status> statuses = Run([&](Collective& c) -> absl::Status {
    std::vector<float> data(10);
    return c.rank() == 0 ? c.AllReduceSum(absl::MakeSpan(data)) : c.AllReduceSum(absl::MakeSpan(data.data(), 9));
  });
  int told = 0;
  for (const absl::Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    told += absl::IsFailedPrecondition(status);
  }
  EXPECT_GE(told, 1) << statuses[0];
}

TEST_P(CollectiveTest, AbortFreesWaitersEverywhereAndStays) {
  const std::vector<absl::Status> statuses = Run([&](Collective& c) -> absl::Status {
    std::vector<double> data(3, 1.0);
    MANTA_RETURN_IF_ERROR(c.AllReduceSum(absl::MakeSpan(data)));
    if (c.rank() == 0) {
      absl::SleepFor(absl::Milliseconds(50));
      c.Abort("the user pressed Ctrl-C");
      EXPECT_TRUE(absl::IsCancelled(c.Barrier()));
      absl::SleepFor(absl::Milliseconds(150));
      return absl::OkStatus();
    }
    const absl::Time start = absl::Now();
    absl::Status status = c.AllReduceSum(absl::MakeSpan(data));
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(250));
    EXPECT_EQ(status, c.Barrier()) << "the first error stays";
    return status;
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  for (int r = 1; r < size(); ++r) {
    EXPECT_TRUE(absl::IsCancelled(statuses[r]) || absl::IsUnavailable(statuses[r])) << statuses[r];
  }
}

TEST_P(CollectiveTest, AbortFromAnotherThread) {
  ExpectAllOk(Run([&](Collective& c) -> absl::Status {
    if (c.rank() != 0) {
      absl::SleepFor(absl::Milliseconds(150));
      return absl::OkStatus();
    }
    std::thread other([&] {
      absl::SleepFor(absl::Milliseconds(30));
      c.Abort("enough");
    });
    const absl::Time start = absl::Now();
    const absl::Status status = c.Barrier();
    EXPECT_LT(absl::Now() - start, absl::Milliseconds(130));
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    other.join();
    return absl::OkStatus();
  }));
}

TEST_P(CollectiveTest, ARankThatLeavesIsNamed) {
  const std::vector<absl::Status> statuses = Run([&](Collective& c) -> absl::Status {
    MANTA_RETURN_IF_ERROR(c.CheckPeers());
    MANTA_RETURN_IF_ERROR(c.Barrier());
    if (c.rank() == c.size() - 1) return absl::OkStatus();
    const absl::Status status = c.Barrier();
    EXPECT_EQ(c.CheckPeers(), status);
    return status;
  });
  const absl::Status& first = statuses[0];
  EXPECT_TRUE(absl::IsUnavailable(first) || absl::IsCancelled(first)) << first;
  if (size() == 2) {
    EXPECT_TRUE(absl::IsUnavailable(first)) << first;
    EXPECT_EQ(GetErrorInfo(first).rank(), 1);
    EXPECT_EQ(GetErrorInfo(first).origin(), v1::ORIGIN_WORKER_DIED);
  }
}

TEST_P(CollectiveTest, ARankThatIsLateEndsWithTheDeadline) {
  const std::vector<absl::Status> statuses = Run(
      [&](Collective& c) -> absl::Status {
        if (c.rank() != 0) return c.Barrier();
        absl::SleepFor(absl::Milliseconds(300));
        (void)c.Barrier();  // may succeed: the others were there, and left
        return c.Barrier();
      },
      absl::Milliseconds(100));
  EXPECT_FALSE(statuses[0].ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(statuses[1]) || size() > 2) << statuses[1];
}

INSTANTIATE_TEST_SUITE_P(Groups, CollectiveTest,
                         ::testing::Values(Case{2, Transport::kAuto}, Case{2, Transport::kSockets},
                                           Case{3, Transport::kAuto}, Case{4, Transport::kSockets},
                                           Case{5, Transport::kAuto}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.transport == Transport::kAuto ? "SharedMemory" : "Sockets",
                                               info.param.size);
                         });

TEST(Collective, AGroupOfOneNeedsNobody) {
  auto c = CreateCpuCollective({});
  ASSERT_TRUE(c.ok()) << c.status();
  std::vector<float> data = {1, 2, 3};
  EXPECT_TRUE((*c)->AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(data, (std::vector<float>{1, 2, 3}));
  std::vector<float> out(3);
  EXPECT_TRUE((*c)->ReduceScatter(data.data(), 3, out.data(), DataType::kF32, ReduceOp::kSum).ok());
  EXPECT_EQ(out, data);
  EXPECT_FALSE((*c)->Send(data.data(), 4, 1).ok());
}

TEST(Reduce, Bf16RoundsOnceToNearestEven) {
  const uint16_t one = 0x3f80, half_ulp = 0x3b80;  // 1 and 2^-8: the sum lies between two bf16 values
  const std::vector<const void*> sources = {&one, &half_ulp};
  uint16_t out = 0;
  ReduceInOrder(sources, 1, DataType::kBF16, ReduceOp::kSum, &out);
  EXPECT_EQ(out, 0x3f80);
}

}  // namespace
}  // namespace manta::comm
