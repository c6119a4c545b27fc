// The weight channel end to end, in one process: stores, their services on loopback, receivers by shared memory and
// gRPC.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/comm/weight_receiver.h"
#include "common/comm/weight_source.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"

namespace manta::comm {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

ChannelOpener Opener() {
  return [](const std::string& address) { return rpc::OpenChannel(address, kToken); };
}

// The value of an element of parameter `p` in version `v`.
float ValueAt(int p, uint64_t v, int64_t element) {
  return static_cast<float>(p * 100000 + static_cast<int64_t>(v) * 1000000) + static_cast<float>(element);
}

const std::vector<std::vector<int64_t>> kShapes = {{300, 257}, {7}, {}, {64, 3, 5}, {1, 300000}};

SliceSpec Spec(int p, int dim, int rank, int size) {
  if (dim >= static_cast<int>(kShapes[p].size())) dim = -1;
  return EvenSlice(absl::StrCat("model.p", p, ".weight"), v1::DTYPE_F32, kShapes[p], dim, rank, size);
}

std::vector<float> Values(int p, uint64_t version, const SliceSpec& spec) {
  std::vector<float> values(spec.box().Elements());
  ForEachRun(Box::Whole(spec.shape), spec.box(), [&](int64_t at, int64_t to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values[to + i] = ValueAt(p, version, at + i);
  });
  return values;
}

// A holder: rank `rank` of `size`, which split dimension `dim` (-1: everyone holds everything).
class Holder {
 public:
  Holder(int rank, int size, int dim) : rank_(rank), size_(size), dim_(dim) {
    WeightStoreOptions options;
    options.rank = rank;
    store_ = std::make_unique<WeightStore>(options);
    service_ = std::make_unique<WeightSourceService>(store_.get());
    auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .token = kToken}, {service_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  absl::Status Publish(uint64_t version) {
    std::vector<std::vector<float>> data;
    std::vector<LocalSlice> slices;
    for (int p = 0; p < static_cast<int>(kShapes.size()); ++p) {
      SliceSpec spec = Spec(p, dim_, rank_, size_);
      data.push_back(Values(p, version, spec));
      slices.push_back({spec, data.back().data()});
    }
    return store_->Publish(version, slices);
  }
  const std::string& address() const { return server_->address(); }
  WeightStore& store() { return *store_; }
  void Stop() { server_->Shutdown(absl::ZeroDuration()); }

 private:
  const int rank_, size_, dim_;
  std::unique_ptr<WeightStore> store_;
  std::unique_ptr<WeightSourceService> service_;
  std::unique_ptr<rpc::Server> server_;
};

// A destination rank that splits dimension `dim`.
struct Destination {
  Destination(int rank, int size, int dim) {
    for (int p = 0; p < static_cast<int>(kShapes.size()); ++p) {
      specs.push_back(Spec(p, dim, rank, size));
      data.emplace_back(specs.back().box().Elements(), -1.0f);
    }
    for (size_t p = 0; p < specs.size(); ++p) slices.push_back({specs[p], data[p].data()});
  }
  bool Holds(uint64_t version) const {
    for (size_t p = 0; p < specs.size(); ++p) {
      if (data[p] != Values(static_cast<int>(p), version, specs[p])) return false;
    }
    return true;
  }
  std::vector<SliceSpec> specs;
  std::vector<std::vector<float>> data;
  std::vector<DestinationSlice> slices;
};

v1::WeightSources Sources(uint64_t version, const std::vector<const Holder*>& holders) {
  v1::WeightSources sources;
  sources.set_version(version);
  for (const Holder* holder : holders) sources.add_addresses(holder->address());
  return sources;
}

TEST(WeightChannel, EveryLayoutByEitherTransport) {
  for (const int from : {-1, 0, 1}) {
    Holder a(0, 2, from), b(1, 2, from);
    ASSERT_TRUE(a.Publish(3).ok());
    ASSERT_TRUE(b.Publish(3).ok());
    for (const int to : {-1, 0, 1}) {
      for (const bool shared : {true, false}) {
        for (int rank = 0; rank < 3; ++rank) {
          SCOPED_TRACE(absl::StrCat("from ", from, " to ", to, " shared ", shared, " rank ", rank));
          Destination d(rank, 3, to);
          ReceiveOptions options;
          options.allow_shared_memory = shared;
          options.verify = true;
          const auto report = ReceiveWeights(Sources(3, {&a, &b}), Opener(), d.slices, options);
          ASSERT_TRUE(report.ok()) << report.status();
          EXPECT_TRUE(d.Holds(3));
          EXPECT_EQ(report->version, 3u);
          EXPECT_EQ(report->shared_memory_bytes, shared ? report->bytes : 0);
          EXPECT_EQ(report->failed_sources, 0);
        }
      }
    }
  }
}

TEST(WeightChannel, NewestVersionsOnlyGrowAndOldOnesAreDropped) {
  Holder a(0, 1, -1);
  for (uint64_t v = 1; v <= 3; ++v) ASSERT_TRUE(a.Publish(v).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(a.Publish(3)));
  EXPECT_TRUE(absl::IsFailedPrecondition(a.Publish(2)));
  Destination d(0, 1, -1);
  EXPECT_EQ(ReceiveWeights(Sources(0, {&a}), Opener(), d.slices)->version, 3u);
  EXPECT_TRUE(d.Holds(3));
  EXPECT_TRUE(ReceiveWeights(Sources(2, {&a}), Opener(), d.slices).ok());
  EXPECT_TRUE(d.Holds(2));
  const auto dropped = ReceiveWeights(Sources(1, {&a}), Opener(), d.slices);
  EXPECT_TRUE(absl::IsFailedPrecondition(dropped.status())) << dropped.status();
  ReceiveOptions options;
  options.min_version = 4;
  const auto back = ReceiveWeights(Sources(0, {&a}), Opener(), d.slices, options);
  EXPECT_TRUE(absl::IsFailedPrecondition(back.status())) << back.status();
}

TEST(WeightChannel, AHolderThatIsGoneOrBehindIsReplacedByAnother) {
  Holder gone(0, 1, -1), behind(1, 1, -1), good(2, 1, -1);
  for (Holder* h : {&gone, &behind, &good}) ASSERT_TRUE(h->Publish(1).ok());
  ASSERT_TRUE(good.Publish(2).ok());
  const v1::WeightSources sources = Sources(0, {&gone, &behind, &good});
  gone.Stop();
  Destination d(0, 1, -1);
  const auto report = ReceiveWeights(sources, Opener(), d.slices);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->version, 2u);
  EXPECT_EQ(report->failed_sources, 2);
  EXPECT_TRUE(d.Holds(2));

  Holder half(0, 2, 0);
  ASSERT_TRUE(half.Publish(2).ok());
  const auto missing = ReceiveWeights(Sources(2, {&half, &gone}), Opener(), d.slices);
  EXPECT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("model.p0.weight"), std::string::npos) << missing.status();
  EXPECT_NE(missing.status().message().find(gone.address()), std::string::npos) << missing.status();
}

TEST(WeightChannel, DamagedBytesAreSeenAndAnotherHolderHelps) {
  for (const bool shared : {true, false}) {
    Holder bad(0, 1, -1), good(1, 1, -1);
    ASSERT_TRUE(bad.Publish(1).ok());
    ASSERT_TRUE(good.Publish(1).ok());
    const auto version = bad.store().Get(1);
    ASSERT_TRUE(version.ok());
    for (int i = 0; i < 5; ++i) {  // a bit in each parameter
      (*version)->segment->data()[(*version)->manifest.slices(i).offset() + 2] ^= std::byte{4};
    }
    Destination d(0, 1, -1);
    ReceiveOptions options;
    options.verify = true;
    options.allow_shared_memory = shared;
    const auto alone = ReceiveWeights(Sources(1, {&bad}), Opener(), d.slices, options);
    EXPECT_TRUE(absl::IsDataLoss(alone.status())) << alone.status();
    const auto both = ReceiveWeights(Sources(1, {&bad, &good}), Opener(), d.slices, options);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_EQ(both->failed_sources, 1);
    EXPECT_TRUE(d.Holds(1));
  }
}

TEST(WeightChannel, AReaderKeepsItsVersionWhileNewerOnesArePublished) {
  Holder a(0, 1, -1);
  ASSERT_TRUE(a.Publish(1).ok());
  const auto lease = a.store().GetWithLease(1);
  ASSERT_TRUE(lease.ok());
  const std::string path = (*lease)->segment->path();
  for (uint64_t v = 2; v <= 6; ++v) ASSERT_TRUE(a.Publish(v).ok());
  const SliceSpec spec = Spec(0, -1, 0, 1);
  EXPECT_EQ(std::memcmp((*lease)->SliceData(0), Values(0, 1, spec).data(), spec.bytes()), 0);
  a.store().ReleaseLease(1, path);
}

// Readers and a publisher at once: what arrives is one version, whole.
TEST(WeightChannel, PublishingWhileReadersRead) {
  Holder a(0, 2, 0), b(1, 2, 0);
  ASSERT_TRUE(a.Publish(1).ok() && b.Publish(1).ok());
  std::atomic<uint64_t> newest{1};
  std::vector<std::thread> readers;
  std::atomic<int> received{0};
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      while (newest < 20) {
        Destination d(0, 1, -1);
        ReceiveOptions options;
        options.allow_shared_memory = r == 0;
        const auto report = ReceiveWeights(Sources(newest, {&a, &b}), Opener(), d.slices, options);
        if (!report.ok()) continue;  // dropped meanwhile
        ++received;
        EXPECT_TRUE(d.Holds(report->version)) << report->version;
      }
    });
  }
  for (uint64_t v = 2; v <= 20; ++v) {
    ASSERT_TRUE(a.Publish(v).ok() && b.Publish(v).ok());
    newest = v;
    absl::SleepFor(absl::Milliseconds(5));
  }
  for (std::thread& t : readers) t.join();
  EXPECT_GT(received, 0);
}

TEST(WeightChannel, ErrorsSayWhatIsWrong) {
  Holder a(0, 1, -1);
  Destination d(0, 1, -1);
  EXPECT_TRUE(absl::IsInvalidArgument(ReceiveWeights({}, Opener(), d.slices).status()));
  const auto nothing = ReceiveWeights(Sources(0, {&a}), Opener(), d.slices);
  EXPECT_TRUE(absl::IsFailedPrecondition(nothing.status())) << nothing.status();
  ASSERT_TRUE(a.Publish(1).ok());
  d.slices[0].spec.dtype = v1::DTYPE_I32;
  const auto type = ReceiveWeights(Sources(1, {&a}), Opener(), d.slices);
  EXPECT_TRUE(absl::IsInvalidArgument(type.status())) << type.status();

  // Boxes that the service does not hold.
  auto channel = rpc::OpenChannel(a.address(), kToken);
  ASSERT_TRUE(channel.ok());
  auto stub = v1::WeightSource::NewStub(*channel);
  v1::FetchWeightsRequest request;
  request.set_version(1);
  v1::ParameterBox& box = *request.add_boxes();
  box.set_name("model.p1.weight");
  box.add_lower(0);
  box.add_upper(8);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  auto reader = stub->Fetch(&context, request);
  v1::WeightChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace manta::comm
