// Gigabytes a second through the weight channel: publishing, and receiving by shared memory and by gRPC. Not a test.
#include "benchmark/benchmark.h"
#include "common/base/check.h"
#include "common/comm/hash64.h"
#include "common/comm/weight_receiver.h"
#include "common/comm/weight_source.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"

namespace manta::comm {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr int kParameters = 32;
constexpr int64_t kRows = 1024, kColumns = 1024;  // 4 MiB each, 128 MiB in all

struct Weights {
  Weights() : data(kParameters * kRows * kColumns, 1.5f) {
    for (int p = 0; p < kParameters; ++p) {
      slices.push_back(
          {{"p" + std::to_string(p), v1::DTYPE_F32, {kRows, kColumns}, -1, 0, 0}, data.data() + p * kRows * kColumns});
    }
  }
  std::vector<float> data;
  std::vector<LocalSlice> slices;
};

// Argument: checksums.
void BM_Publish(benchmark::State& state) {
  const Weights weights;
  WeightStoreOptions options;
  options.checksums = state.range(0) != 0;
  WeightStore store(options);
  uint64_t version = 0;
  for (auto _ : state) MANTA_CHECK(store.Publish(++version, weights.slices).ok());
  state.SetBytesProcessed(state.iterations() * weights.data.size() * 4);
}
BENCHMARK(BM_Publish)->ArgName("checksums")->Arg(0)->Arg(1)->UseRealTime();

// Arguments: shared memory, verify.
void BM_Receive(benchmark::State& state) {
  const Weights weights;
  WeightStore store;
  WeightSourceService service(&store);
  auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .token = kToken}, {&service});
  MANTA_CHECK(server.ok()) << server.status().ToString();
  MANTA_CHECK(store.Publish(1, weights.slices).ok());
  std::vector<float> received(weights.data.size());
  std::vector<DestinationSlice> destinations;
  for (size_t p = 0; p < weights.slices.size(); ++p) {
    destinations.push_back({weights.slices[p].spec, received.data() + p * kRows * kColumns});
  }
  v1::WeightSources sources;
  sources.set_version(1);
  sources.add_addresses((*server)->address());
  ReceiveOptions options;
  options.allow_shared_memory = state.range(0) != 0;
  options.verify = state.range(1) != 0;
  const auto open = [](const std::string& address) { return rpc::OpenChannel(address, kToken); };
  for (auto _ : state) {
    const auto report = ReceiveWeights(sources, open, destinations, options);
    MANTA_CHECK(report.ok()) << report.status().ToString();
  }
  MANTA_CHECK(received == weights.data);
  state.SetBytesProcessed(state.iterations() * received.size() * 4);
}
BENCHMARK(BM_Receive)
    ->ArgNames({"shared", "verify"})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Args({0, 0})
    ->Args({0, 1})
    ->UseRealTime();

void BM_Hash(benchmark::State& state) {
  const std::vector<char> data(state.range(0), 'x');
  for (auto _ : state) benchmark::DoNotOptimize(Hash64::Of(data.data(), data.size()));
  state.SetBytesProcessed(state.iterations() * data.size());
}
BENCHMARK(BM_Hash)->Arg(64 << 10);

}  // namespace
}  // namespace manta::comm
