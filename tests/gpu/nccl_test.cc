// NCCL behind the Collective interface: a rank a GPU, in threads; and the weight channel between GPUs' memories.
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/comm/cpu_collective.h"
#include "common/comm/group_for_test.h"
#include "common/comm/weight_receiver.h"
#include "common/comm/weight_source.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/gpu/device_memory.h"

namespace manta {
namespace {

using comm::Collective;
using comm::DataType;
using comm::ReduceOp;

// `body` on every rank, each on a GPU and a thread of its own.
std::vector<absl::Status> OnGpus(const cuda::Api* api, int size, absl::Duration timeout,
                                 const std::function<absl::Status(Collective&)>& body, int same_device = -1) {
  static std::atomic<int> next{0};
  const std::string name = absl::StrCat("nccl", next++);
  std::vector<absl::Status> statuses(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = [&]() -> absl::Status {
        MANTA_RETURN_IF_ERROR(api->set_device(same_device >= 0 ? same_device : rank));
        MANTA_ASSIGN_OR_RETURN(auto bootstrap, comm::CreateCpuCollective(comm::GroupOptionsForTest(
                                                   rank, size, name, comm::CpuCollectiveOptions::Transport::kAuto)));
        MANTA_ASSIGN_OR_RETURN(auto nccl, api->new_nccl_collective(std::move(bootstrap), timeout));
        return body(*nccl);
      }();
    });
  }
  for (std::thread& t : threads) t.join();
  return statuses;
}

absl::Status AllCalls(const cuda::Api* api, Collective& c) {
  const auto device = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(c.rank()));
  const auto floats = at::TensorOptions(device).dtype(at::kFloat);
  const int64_t n = 100003;
  const float total = static_cast<float>(c.size() * (c.size() + 1)) / 2;
  const auto check = [](bool ok, const char* what) { return ok ? absl::OkStatus() : absl::DataLossError(what); };

  at::Tensor x = at::full({n}, c.rank() + 1, floats);
  MANTA_RETURN_IF_ERROR(c.AllReduce(x.data_ptr(), n, DataType::kF32, ReduceOp::kSum));
  MANTA_RETURN_IF_ERROR(c.Wait());
  MANTA_RETURN_IF_ERROR(check((x == total).all().item<bool>(), "all_reduce sum"));
  at::Tensor m = at::full({n}, c.rank() + 1, floats.dtype(at::kBFloat16));
  MANTA_RETURN_IF_ERROR(c.AllReduce(m.data_ptr(), n, DataType::kBF16, ReduceOp::kMax));
  MANTA_RETURN_IF_ERROR(c.Wait());
  MANTA_RETURN_IF_ERROR(check((m == c.size()).all().item<bool>(), "all_reduce max"));
  at::Tensor b = at::full({n}, c.rank(), floats);
  MANTA_RETURN_IF_ERROR(c.Broadcast(b.data_ptr(), n * 4, c.size() - 1));
  at::Tensor whole = at::zeros({n * c.size()}, floats), mine = at::full({n}, c.rank() + 1, floats);
  MANTA_RETURN_IF_ERROR(c.AllGather(mine.data_ptr(), n * 4, whole.data_ptr()));
  at::Tensor part = at::zeros({n}, floats);
  MANTA_RETURN_IF_ERROR(c.ReduceScatter(whole.data_ptr(), n, part.data_ptr(), DataType::kF32, ReduceOp::kSum));
  MANTA_RETURN_IF_ERROR(c.Barrier());
  MANTA_RETURN_IF_ERROR(check((b == c.size() - 1).all().item<bool>(), "broadcast"));
  MANTA_RETURN_IF_ERROR(check((whole.view({c.size(), n}).sum(0) == total).all().item<bool>(), "all_gather"));
  MANTA_RETURN_IF_ERROR(
      check((part == static_cast<float>(c.size() * (c.rank() + 1))).all().item<bool>(), "reduce_scatter"));
  if (c.size() > 1 && c.rank() < 2) {
    at::Tensor p = at::full({n}, c.rank() == 0 ? 5 : 0, floats);
    MANTA_RETURN_IF_ERROR(c.rank() == 0 ? c.Send(p.data_ptr(), n * 4, 1) : c.Recv(p.data_ptr(), n * 4, 0));
    MANTA_RETURN_IF_ERROR(c.Wait());
    MANTA_RETURN_IF_ERROR(check((p == 5).all().item<bool>(), "send/recv"));
  }
  (void)api;
  return c.Barrier();
}

TEST(Nccl, OneRank) {
  MANTA_NEED_GPU(api);
  const auto statuses = OnGpus(api, 1, absl::Seconds(60), [&](Collective& c) { return AllCalls(api, c); });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
}

TEST(Nccl, ARankAGpu) {
  MANTA_NEED_GPU(api);
  const int size = std::min(api->device_count(), 8);
  if (size < 2) GTEST_SKIP() << "one GPU here";
  for (const absl::Status& status :
       OnGpus(api, size, absl::Seconds(120), [&](Collective& c) { return AllCalls(api, c); })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(Nccl, TwoRanksOnOneGpuAreRefused) {
  MANTA_NEED_GPU(api);
  for (const absl::Status& status : OnGpus(
           api, 2, absl::Seconds(60), [&](Collective&) { return absl::OkStatus(); }, /*same_device=*/0)) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find("same GPU"), std::string::npos) << status;
  }
}

TEST(Nccl, AbortAndALostPeerEndTheWait) {
  MANTA_NEED_GPU(api);
  if (api->device_count() < 2) GTEST_SKIP() << "one GPU here";
  const auto statuses = OnGpus(api, 2, absl::Seconds(60), [&](Collective& c) -> absl::Status {
    MANTA_RETURN_IF_ERROR(AllCalls(api, c));
    if (c.rank() == 1) return absl::OkStatus();  // leaves
    const auto device = at::Device(at::kCUDA, 0);
    at::Tensor x = at::ones({1000}, at::TensorOptions(device).dtype(at::kFloat));
    const absl::Time start = absl::Now();
    absl::Status status = c.AllReduce(x.data_ptr(), 1000, DataType::kF32, ReduceOp::kSum);
    if (status.ok()) status = c.Wait();
    std::printf("  rank 0 learned after %.0f ms: %s\n", absl::ToDoubleMilliseconds(absl::Now() - start),
                std::string(status.message()).c_str());
    EXPECT_LT(absl::Now() - start, absl::Seconds(10));
    EXPECT_FALSE(status.ok());
    return absl::OkStatus();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(GpuWeights, FromOneGpusMemoryToAnothers) {
  MANTA_NEED_GPU(api);
  constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const int64_t n = 16 << 20;
  const at::Tensor source = at::randn({n}, options);
  at::Tensor destination = at::zeros({n}, options);
  comm::WeightStoreOptions store_options;
  store_options.copy = api->copy;
  comm::WeightStore store(store_options);
  comm::WeightSourceService service(&store);
  auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .token = kToken}, {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  const comm::SliceSpec spec{"w", v1::DTYPE_BF16, {n}, -1, 0, 0};
  v1::WeightSources sources;
  sources.add_addresses((*server)->address());
  for (uint64_t version = 1; version <= 3; ++version) {
    const absl::Time start = absl::Now();
    ASSERT_TRUE(store.Publish(version, {{spec, source.data_ptr()}}).ok());
    const absl::Time published = absl::Now();
    comm::ReceiveOptions receive;
    receive.verify = version == 1;
    receive.copy = api->copy;
    const auto report = comm::ReceiveWeights(
        sources, [&](const std::string& address) { return rpc::OpenChannel(address, kToken); },
        {{spec, destination.data_ptr()}}, receive);
    ASSERT_TRUE(report.ok()) << report.status();
    std::printf("  weights through shared memory: publish %.2f GB/s, receive %.2f GB/s%s\n",
                2e-9 * static_cast<double>(n) / absl::ToDoubleSeconds(published - start),
                2e-9 * static_cast<double>(n) / report->seconds, receive.verify ? " (verified)" : "");
    EXPECT_TRUE(at::equal(source, destination));
    destination.zero_();
  }
}

}  // namespace
}  // namespace manta
