// Cutting transfers into buckets: whatever the layouts, every byte lands once.
#include "common/comm/transfer_buckets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/comm/fake_device_transport.h"
#include "common/comm/weight_plan.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

struct Memory {
  std::vector<SliceSpec> slices;
  std::vector<std::vector<std::byte>> data;
  std::vector<std::vector<int>> writes;  // a byte
};

// What the messages of one pair of processes carry, in their order.
class Wire {
 public:
  void Send(const Bucket& bucket) {
    for (const CopyRun& run : bucket.copies) CopyInMemory(run);
    for (const Message& message : bucket.messages) {
      messages_.emplace_back(reinterpret_cast<const char*>(message.data), message.bytes);
    }
  }
  template <typename Written>
  void Receive(const Bucket& bucket, const Written& written) {
    for (const Message& message : bucket.messages) {
      ASSERT_FALSE(messages_.empty());
      ASSERT_EQ(messages_.front().size(), message.bytes);
      std::memcpy(message.data, messages_.front().data(), message.bytes);
      messages_.pop_front();
      written(message.data, message.bytes);
    }
    for (const CopyRun& run : bucket.copies) {
      CopyInMemory(run);
      for (uint64_t i = 0; i < run.count; ++i) written(run.to + i * run.to_stride, run.bytes);
    }
  }
  bool empty() const { return messages_.empty(); }

 private:
  std::deque<std::string> messages_;
};

TEST(TransferBuckets, EveryByteLandsOnceWhateverTheLayouts) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomStream random(seed, 0);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random.NextBelow(static_cast<uint64_t>(n))); };
    const int num_parameters = 1 + static_cast<int>(below(5)), num_sources = 1 + static_cast<int>(below(4));
    const int num_destinations = 1 + static_cast<int>(below(3));
    const uint64_t bucket_bytes = 1 + static_cast<uint64_t>(below(300)),
                   direct_bytes = static_cast<uint64_t>(below(80));
    std::vector<std::vector<int64_t>> shapes;
    std::vector<int> from_dim, to_dim;
    for (int p = 0; p < num_parameters; ++p) {
      std::vector<int64_t> shape(static_cast<size_t>(below(4)));
      for (int64_t& extent : shape) extent = 1 + below(9);
      const int dims = static_cast<int>(shape.size());
      from_dim.push_back(static_cast<int>(below(dims + 1)) - 1);
      to_dim.push_back(static_cast<int>(below(dims + 1)) - 1);
      shapes.push_back(std::move(shape));
    }
    const auto make = [&](int rank, int size, const std::vector<int>& dims) {
      Memory memory;
      for (int p = 0; p < num_parameters; ++p) {
        const v1::DType dtype = p % 2 == 0 ? v1::DTYPE_F32 : v1::DTYPE_BF16;
        memory.slices.push_back(EvenSlice(absl::StrCat("p", p), dtype, shapes[p], dims[p], rank, size));
        memory.data.emplace_back(memory.slices.back().bytes());
        memory.writes.emplace_back(memory.slices.back().bytes(), 0);
      }
      return memory;
    };
    std::vector<Memory> sources, destinations;
    std::vector<ShardTable> source_tables;
    for (int r = 0; r < num_sources; ++r) {
      sources.push_back(make(r, num_sources, from_dim));
      for (int p = 0; p < num_parameters; ++p) {  // each byte a function of its place in the whole parameter
        const SliceSpec& slice = sources.back().slices[p];
        const int64_t width = static_cast<int64_t>(SizeOf(slice.dtype));
        ForEachRun(Box::Whole(slice.shape), slice.box(), [&](int64_t at, int64_t to, int64_t n) {
          for (int64_t b = 0; b < n * width; ++b) {
            sources.back().data[p][to * width + b] = static_cast<std::byte>((at * width + b) * 31 + p * 7);
          }
        });
      }
      source_tables.push_back(sources.back().slices);
    }
    for (int d = 0; d < num_destinations; ++d) {
      Memory destination = make(d, num_destinations, to_dim);
      const auto plan = PlanTransfers(source_tables, {destination.slices});
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (int r = 0; r < num_sources; ++r) {
        std::vector<PlacedBox> out, in;
        for (const Transfer& t : *plan) {
          if (t.source_rank != r) continue;
          const SliceSpec& held = sources[r].slices[t.source_slice];
          const SliceSpec& wanted = destination.slices[t.destination_slice];
          const uint64_t width = SizeOf(wanted.dtype);
          const bool direct = static_cast<uint64_t>(t.box.Elements()) * width >= direct_bytes &&
                              IsContiguous(held.box(), t.box) && IsContiguous(wanted.box(), t.box);
          out.push_back({held.box(), sources[r].data[t.source_slice].data(), t.box, width, direct});
          in.push_back({wanted.box(), destination.data[t.destination_slice].data(), t.box, width, direct});
        }
        const uint64_t staging = StagingBytes(out, bucket_bytes);
        EXPECT_EQ(staging, StagingBytes(in, bucket_bytes));
        std::vector<std::byte> a(staging), b(staging), c(staging), e(staging);
        const auto sends = CutBuckets(out, 1, bucket_bytes, {a.data(), b.data()}, Direction::kSend);
        const auto receives = CutBuckets(in, 0, bucket_bytes, {c.data(), e.data()}, Direction::kReceive);
        ASSERT_EQ(sends.size(), receives.size());
        Wire wire;
        for (size_t i = 0; i < sends.size(); ++i) {
          uint64_t bytes = 0;
          for (const Message& message : sends[i].messages) bytes += message.bytes;
          EXPECT_LE(bytes, bucket_bytes);
          EXPECT_TRUE(bytes == bucket_bytes || i + 1 == sends.size());
          wire.Send(sends[i]);
          wire.Receive(receives[i], [&](const std::byte* at, uint64_t n) {
            for (int p = 0; p < num_parameters; ++p) {
              const std::byte* begin = destination.data[p].data();
              if (at < begin || at + n > begin + destination.data[p].size()) continue;
              for (uint64_t k = 0; k < n; ++k) ++destination.writes[p][static_cast<size_t>(at - begin) + k];
            }
          });
        }
        EXPECT_TRUE(wire.empty());
      }
      for (int p = 0; p < num_parameters; ++p) {
        const SliceSpec& slice = destination.slices[p];
        const int64_t width = static_cast<int64_t>(SizeOf(slice.dtype));
        EXPECT_TRUE(
            std::all_of(destination.writes[p].begin(), destination.writes[p].end(), [](int n) { return n == 1; }));
        ForEachRun(Box::Whole(slice.shape), slice.box(), [&](int64_t at, int64_t to, int64_t n) {
          for (int64_t b = 0; b < n * width; ++b) {
            ASSERT_EQ(destination.data[p][to * width + b], static_cast<std::byte>((at * width + b) * 31 + p * 7));
          }
        });
      }
    }
  }
}

TEST(TransferBuckets, CopiesOfTheSameLengthAndDistanceAreOne) {
  std::vector<std::byte> from(64 * 64), to(64 * 16);
  const Box source = Box::Whole({64, 64}), destination{{0, 16}, {64, 32}};
  std::vector<CopyRun> copies;
  AppendCopies(source, from.data(), destination, to.data(), destination, 1, &copies);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].count, 64u);
  EXPECT_EQ(copies[0].bytes, 16u);
  EXPECT_EQ(copies[0].from_stride, 64u);
  EXPECT_EQ(copies[0].to_stride, 16u);
  // Slices that lie behind each other on both sides make one copy.
  copies.clear();
  for (int i = 0; i < 4; ++i) {
    AppendCopies(Box::Whole({16}), from.data() + i * 16, Box::Whole({16}), to.data() + i * 16, Box::Whole({16}), 1,
                 &copies);
  }
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].bytes, 64u);
}

TEST(TransferBuckets, LargePiecesGoFromMemoryToMemory) {
  std::vector<std::byte> data(1000);
  const PlacedBox large{Box::Whole({1000}), data.data(), Box::Whole({1000}), 1, true};
  const auto buckets = CutBuckets({large}, 3, 400, {nullptr, nullptr}, Direction::kSend);
  ASSERT_EQ(buckets.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(buckets[i].copies.empty());
    ASSERT_EQ(buckets[i].messages.size(), 1u);
    EXPECT_EQ(buckets[i].messages[0].data, data.data() + 400 * i);
    EXPECT_EQ(buckets[i].messages[0].peer, 3);
  }
  EXPECT_EQ(StagingBytes({large}, 400), 0u);
}

}  // namespace
}  // namespace manta::comm
