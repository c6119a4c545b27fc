// A trainer rank and a generator within one process, for tests of the weight channel from GPU to GPU: real stores,
// services and sessions on loopback, and a transport in memory (fake_device_transport.h).
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/comm/fake_device_transport.h"
#include "common/comm/weight_client.h"
#include "common/comm/weight_source.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "gtest/gtest.h"

namespace manta::comm {

inline constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
inline const std::vector<std::vector<int64_t>> kShapes = {{30, 27}, {7}, {}, {16, 3, 5}, {1, 3000}};

inline SliceSpec Spec(int p, int dim, int rank, int size) {
  if (dim >= static_cast<int>(kShapes[p].size())) dim = -1;
  return EvenSlice(absl::StrCat("model.p", p, ".weight"), v1::DTYPE_F32, kShapes[p], dim, rank, size);
}

inline std::vector<float> Values(int p, uint64_t version, const SliceSpec& spec) {
  std::vector<float> values(spec.box().Elements());
  ForEachRun(Box::Whole(spec.shape), spec.box(), [&](int64_t at, int64_t to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      values[to + i] = static_cast<float>(p * 100000 + static_cast<int64_t>(version) * 1000000 + at + i);
    }
  });
  return values;
}

// A trainer rank: its parameters lie in one array, which "its GPU" holds.
class Trainer {
 public:
  Trainer(const std::string& gpu, int rank = 0, int size = 1, int dim = -1,
          absl::Duration max_borrow = absl::Seconds(5))
      : transport(std::make_shared<FakeDeviceTransport>(gpu)), rank_(rank), size_(size), dim_(dim) {
    WeightStoreOptions options;
    options.rank = rank;
    options.max_borrow = max_borrow;
    store = std::make_unique<WeightStore>(options);
    service_ = std::make_unique<WeightSourceService>(store.get());
    auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .token = kToken}, {service_.get()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    uint64_t floats = 0;
    for (int p = 0; p < static_cast<int>(kShapes.size()); ++p) floats += Spec(p, dim, rank, size).bytes() / 4 + 3;
    flat_.resize(floats);
  }
  ~Trainer() { Stop(); }

  void Change(uint64_t version) {
    EXPECT_TRUE(store->BeginChange().ok());
    slices_.clear();
    float* at = flat_.data();
    for (int p = 0; p < static_cast<int>(kShapes.size()); ++p) {
      const SliceSpec spec = Spec(p, dim_, rank_, size_);
      const std::vector<float> values = Values(p, version, spec);
      std::copy(values.begin(), values.end(), at);
      slices_.push_back({spec, at});
      at += values.size() + 3;
    }
  }
  void Publish(uint64_t version, int num_readers = 1) {
    const auto copy = [](void* to, const void* from, size_t bytes) {
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    };
    const absl::Status published = store->PublishInPlace(version, slices_, transport, copy, num_readers);
    EXPECT_TRUE(published.ok()) << published;
  }
  void Next(uint64_t version, int num_readers = 1) {
    Change(version);
    Publish(version, num_readers);
  }
  void Stop() {
    if (server_) server_->Shutdown(absl::ZeroDuration());
  }
  const std::string& address() const { return server_->address(); }

  std::shared_ptr<FakeDeviceTransport> transport;
  std::unique_ptr<WeightStore> store;

 private:
  const int rank_, size_, dim_;
  std::vector<float> flat_;
  std::vector<LocalSlice> slices_;
  std::unique_ptr<WeightSourceService> service_;
  std::unique_ptr<rpc::Server> server_;
};

// A generator: its weights, and memory beside them for what comes through the host.
class Generator {
 public:
  explicit Generator(const std::string& gpu, int dim = -1, int rank = 0, int size = 1) {
    if (!gpu.empty()) transport = std::make_shared<FakeDeviceTransport>(gpu);
    for (int p = 0; p < static_cast<int>(kShapes.size()); ++p) {
      specs.push_back(Spec(p, dim, rank, size));
      weights.emplace_back(specs.back().box().Elements(), -1.0f);
    }
    staged = weights;
    options.open_channel = [](const std::string& address) { return rpc::OpenChannel(address, kToken); };
    options.transport = transport;
    options.log = [this](bool warning, const std::string& text) {
      log.push_back(absl::StrCat(warning ? "W " : "I ", text));
    };
    options.device.bucket_bytes = 1000;
    options.device.direct_bytes = 100;
    options.device.join_timeout = absl::Seconds(5);
    options.device.transfer_timeout = absl::Seconds(5);
  }

  absl::StatusOr<ReceiveReport> Update(uint64_t version, const std::vector<const Trainer*>& trainers,
                                       ReceiveOptions receive = {}) {
    if (client == nullptr) client = std::make_unique<WeightClient>(options);
    v1::WeightSources sources;
    sources.set_version(version);
    for (const Trainer* trainer : trainers) sources.add_addresses(trainer->address());
    const auto slices = [this](std::vector<std::vector<float>>& data) {
      std::vector<DestinationSlice> result;
      for (size_t p = 0; p < specs.size(); ++p) result.push_back({specs[p], data[p].data()});
      return result;
    };
    WeightDestination destination;
    destination.weights = slices(weights);
    destination.staging = [&] { return slices(staged); };
    destination.swap = [&] {
      weights = staged;
      return absl::OkStatus();
    };
    destination.exclusively = [&](uint64_t, const std::function<absl::Status()>& write,
                                  const std::function<bool()>& pieces) {
      if (before_write) before_write();
      const absl::Status status = write();
      in_pieces = !status.ok() && pieces && pieces();
      return status;
    };
    return client->Update(sources, destination, receive);
  }
  bool Holds(uint64_t version) const {
    for (size_t p = 0; p < specs.size(); ++p) {
      if (weights[p] != Values(static_cast<int>(p), version, specs[p])) return false;
    }
    return true;
  }
  int warnings() const {
    return static_cast<int>(
        std::count_if(log.begin(), log.end(), [](const std::string& line) { return absl::StartsWith(line, "W "); }));
  }

  std::shared_ptr<FakeDeviceTransport> transport;
  WeightClientOptions options;
  std::unique_ptr<WeightClient> client;
  std::vector<SliceSpec> specs;
  std::vector<std::vector<float>> weights, staged;
  std::vector<std::string> log;
  std::function<void()> before_write;
  bool in_pieces = false;
};

}  // namespace manta::comm
