// The weight channel from GPU to GPU, between two processes: this one reads; the program started again holds the
// weights.
//
// CUDA IPC on one GPU; NCCL on two. Bandwidths are printed beside what the GPU itself does in the same run.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/kill.h"
#include "common/comm/weight_client.h"
#include "common/comm/weight_source.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tests/gpu/device_memory.h"

extern char** environ;

namespace manta {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr int64_t kRow = 4096;

// One flat buffer with a large matrix, a few small vectors and another matrix, as a model's is.
struct Layout {
  explicit Layout(int64_t rows) {
    Add("embed", {rows / 2, kRow});
    for (int i = 0; i < 3; ++i) Add(absl::StrCat("norm", i), {kRow});
    Add("head", {rows - rows / 2, kRow});
  }
  void Add(std::string name, std::vector<int64_t> shape) {
    comm::SliceSpec spec{std::move(name), v1::DTYPE_BF16, std::move(shape), -1, 0, 0};
    offsets.push_back(elements);
    elements += static_cast<int64_t>(spec.bytes()) / 2;
    specs.push_back(std::move(spec));
  }
  std::vector<comm::SliceSpec> specs;
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  uint64_t bytes() const { return static_cast<uint64_t>(elements) * 2; }
};

at::Tensor MakeFlat(const Layout& layout, int device) {
  return at::zeros({layout.elements},
                   at::TensorOptions(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device))).dtype(at::kBFloat16));
}

// Different in every element's neighbourhood, and in every version.
void Fill(at::Tensor& flat, uint64_t version) {
  flat.view({-1, 128}).copy_(at::arange(128, flat.options()).view({1, 128}));
  flat.narrow(0, 0, 1000).fill_(static_cast<double>(version));
  flat.narrow(0, flat.numel() - 1000, 1000).fill_(-static_cast<double>(version));
}

// ---- The process that holds the weights: commands on stdin, answers on stdout. -----------------------------------
int Hold(int device, int64_t rows) {
  const auto api = cuda::Load();
  if (!api.ok() || !(*api)->set_device(device).ok()) return 2;
  const auto transport = (*api)->new_device_transport(device);
  if (!transport.ok()) return 3;
  const Layout layout(rows);
  at::Tensor flat = MakeFlat(layout, device);
  comm::WeightStoreOptions options;
  options.max_borrow = absl::Seconds(5);
  comm::WeightStore store(options);
  comm::WeightSourceService service(&store);
  auto server = rpc::Server::Start({.listen = "127.0.0.1:0", .token = kToken}, {&service});
  if (!server.ok()) return 4;
  std::cout << (*server)->address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {  // "publish VERSION"
    uint64_t version = 0;
    if (!absl::StartsWith(line, "publish ") || !absl::SimpleAtoi(line.substr(8), &version)) return 5;
    absl::Status status = store.BeginChange();
    Fill(flat, version);
    if (status.ok()) status = (*api)->synchronize();
    std::vector<comm::LocalSlice> slices;
    for (size_t i = 0; i < layout.specs.size(); ++i) {
      slices.push_back({layout.specs[i], static_cast<const at::BFloat16*>(flat.const_data_ptr()) + layout.offsets[i]});
    }
    if (status.ok()) status = store.PublishInPlace(version, slices, *transport, (*api)->copy, 1);
    std::cout << (status.ok() ? "ok" : status.ToString()) << std::endl;
  }
  (*server)->Shutdown(absl::ZeroDuration());
  return 0;
}

class HolderProcess {
 public:
  HolderProcess(int device, int64_t rows) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> args = {"gpu_weights_test", "--hold", absl::StrCat(device), absl::StrCat(rows)};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    if (posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    commands_ = fdopen(in[1], "w");
    answers_ = fdopen(out[0], "r");
    address_ = Answer();
  }
  ~HolderProcess() {
    fclose(commands_);  // it ends at the end of its input
    const absl::Time until = absl::Now() + absl::Seconds(20);
    int status = 0;
    while (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == 0) {
      if (absl::Now() > until) KillProcess(pid_, SIGKILL);
      absl::SleepFor(absl::Milliseconds(10));
    }
    fclose(answers_);
  }
  std::string Publish(uint64_t version) {
    fprintf(commands_, "publish %llu\n", static_cast<unsigned long long>(version));
    fflush(commands_);
    return Answer();
  }
  void Signal(int signal) { KillProcess(pid_, signal); }
  const std::string& address() const { return address_; }

 private:
  std::string Answer() {
    char line[4096] = {};
    if (fgets(line, sizeof(line), answers_) == nullptr) return "it is gone";
    std::string text = line;
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  pid_t pid_ = -1;
  FILE* commands_ = nullptr;
  FILE* answers_ = nullptr;
  std::string address_;
};

// ---- The process that reads. ---------------------------------------------------------------------------------------
class Reader {
 public:
  Reader(const cuda::Api* api, int device, int64_t rows)
      : api_(*api), layout_(rows), flat_(MakeFlat(layout_, device)), staged_(MakeFlat(layout_, device)) {
    options.open_channel = [](const std::string& address) { return rpc::OpenChannel(address, kToken); };
    options.transport = api->new_device_transport(device).value();
    options.log = [this](bool, const std::string& text) {
      log.push_back(text);
      std::printf("  log: %s\n", text.c_str());
    };
    options.device.join_timeout = absl::Seconds(30);
    options.device.transfer_timeout = absl::Seconds(20);
  }
  absl::StatusOr<comm::ReceiveReport> Update(uint64_t version, const std::string& address, bool verify = false) {
    if (client == nullptr) client = std::make_unique<comm::WeightClient>(options);
    v1::WeightSources sources;
    sources.set_version(version);
    sources.add_addresses(address);
    const auto slices = [this](at::Tensor& flat) {
      std::vector<comm::DestinationSlice> result;
      for (size_t i = 0; i < layout_.specs.size(); ++i) {
        result.push_back({layout_.specs[i], static_cast<at::BFloat16*>(flat.mutable_data_ptr()) + layout_.offsets[i]});
      }
      return result;
    };
    comm::WeightDestination destination;
    destination.weights = slices(flat_);
    destination.staging = [&] { return slices(staged_); };
    destination.swap = [&] {
      flat_.copy_(staged_);
      return absl::OkStatus();
    };
    destination.copy = api_.copy;
    destination.exclusively = [&](uint64_t, const std::function<absl::Status()>& write,
                                  const std::function<bool()>& in_pieces) {
      if (in_pieces && before_write) before_write();
      const absl::Time start = absl::Now();
      const absl::Status status = write();
      if (in_pieces) write_seconds = absl::ToDoubleSeconds(absl::Now() - start);
      return status;
    };
    comm::ReceiveOptions receive;
    receive.verify = verify;
    return client->Update(sources, destination, receive);
  }
  bool Holds(uint64_t version) const {
    at::Tensor expected = at::empty_like(flat_);
    Fill(expected, version);
    return at::equal(flat_, expected);
  }
  // GB/s of a plain copy on this GPU (or between two), of the same bytes.
  double CopyBandwidth(int other_device = -1) {
    at::Tensor from = other_device >= 0 ? MakeFlat(layout_, other_device) : staged_;
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      const absl::Time start = absl::Now();
      flat_.copy_(from);  // ATen's: from one GPU to another it opens the way between the two
      if (!api_.synchronize().ok()) return 0;
      best = std::max(best, GigaBytes() / absl::ToDoubleSeconds(absl::Now() - start));
    }
    return best;
  }
  double GigaBytes() const { return 1e-9 * static_cast<double>(layout_.bytes()); }

  comm::WeightClientOptions options;
  std::unique_ptr<comm::WeightClient> client;
  std::vector<std::string> log;
  std::function<void()> before_write;
  double write_seconds = 0;

 private:
  const cuda::Api& api_;
  const Layout layout_;
  at::Tensor flat_, staged_;
};

void PushAndMeasure(Reader& reader, HolderProcess& holder, const char* transport, double ceiling,
                    const char* ceiling_name) {
  double moved = 0, whole = 0;
  for (uint64_t version = 1; version <= 8; ++version) {
    ASSERT_EQ(holder.Publish(version), "ok");
    const auto report = reader.Update(version, holder.address(), /*verify=*/version == 1);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->transport, transport);
    ASSERT_TRUE(reader.Holds(version)) << version;
    if (version == 1) continue;
    moved = std::max(moved, reader.GigaBytes() / reader.write_seconds);
    whole = std::max(whole, reader.GigaBytes() / report->seconds);
  }
  std::printf("  weights by %s, %.1f GB: moved at %.0f GB/s, the whole update at %.0f GB/s; %s %.0f GB/s, ratio %.2f\n",
              transport, reader.GigaBytes(), moved, whole, ceiling_name, ceiling, moved / ceiling);
}

TEST(GpuWeights, CudaIpcBetweenTwoProcessesOnOneGpu) {
  MANTA_NEED_GPU(api);
  for (const int64_t rows : {64, 1 << 20}) {  // half a megabyte, which shares its allocation with others; 8 GiB
    Reader reader(api, 0, rows);
    HolderProcess holder(0, rows);
    PushAndMeasure(reader, holder, "cuda_ipc", reader.CopyBandwidth(), "a device copy");
    EXPECT_EQ(reader.log.size(), 1u);
  }
}

TEST(GpuWeights, AHolderThatDiesBeforeACopyIsReplaced) {
  MANTA_NEED_GPU(api);
  const int64_t rows = 1 << 14;
  Reader reader(api, 0, rows);
  auto holder = std::make_unique<HolderProcess>(0, rows);
  ASSERT_EQ(holder->Publish(1), "ok");
  ASSERT_TRUE(reader.Update(1, holder->address()).ok());
  ASSERT_EQ(holder->Publish(2), "ok");
  reader.before_write = [&] {
    holder->Signal(SIGKILL);
    absl::SleepFor(absl::Milliseconds(200));
  };
  const absl::Time start = absl::Now();
  const auto report = reader.Update(2, holder->address());
  EXPECT_FALSE(report.ok());
  std::printf("  learned after %.0f ms: %s\n", absl::ToDoubleMilliseconds(absl::Now() - start),
              std::string(report.status().message()).c_str());
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  reader.before_write = nullptr;
  holder = std::make_unique<HolderProcess>(0, rows);
  ASSERT_EQ(holder->Publish(3), "ok");
  const auto again = reader.Update(3, holder->address(), /*verify=*/true);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->transport, "cuda_ipc");
  EXPECT_TRUE(reader.Holds(3));
}

// One GPU is enough to see that joining is given up: at a deadline, when a peer is gone, and that it can be tried
// again.
TEST(GpuWeights, JoiningNcclEndsAtItsDeadlineOrWhenThePeerIsGone) {
  MANTA_NEED_GPU(api);
  const auto transport = api->new_device_transport(0);
  ASSERT_TRUE(transport.ok()) << transport.status();
  for (int round = 0; round < 2; ++round) {
    const auto id = (*transport)->NewGroupId();
    ASSERT_TRUE(id.ok());
    absl::Time start = absl::Now();
    const auto late = (*transport)->Join(*id, 0, 2, start + absl::Seconds(2), [] { return absl::OkStatus(); });
    EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
    std::printf("  joining alone ended after %.0f ms (2 s allowed)\n", absl::ToDoubleMilliseconds(absl::Now() - start));
    EXPECT_LT(absl::Now() - start, absl::Seconds(8));
    const auto other = (*transport)->NewGroupId();
    ASSERT_TRUE(other.ok());
    start = absl::Now();
    const auto gone = (*transport)->Join(*other, 0, 2, start + absl::Seconds(30), [&]() -> absl::Status {
      return absl::Now() - start > absl::Seconds(1) ? absl::UnavailableError("the peer is gone") : absl::OkStatus();
    });
    EXPECT_TRUE(absl::IsUnavailable(gone.status())) << gone.status();
    EXPECT_LT(absl::Now() - start, absl::Seconds(6));
  }
  // A communicator of one rank comes about at once, and is left without a peer.
  const auto id = (*transport)->NewGroupId();
  ASSERT_TRUE(id.ok());
  const auto alone = (*transport)->Join(*id, 0, 1, absl::Now() + absl::Seconds(30), [] { return absl::OkStatus(); });
  EXPECT_TRUE(alone.ok()) << alone.status();
}

TEST(GpuWeights, NcclBetweenTwoProcessesOnTwoGpus) {
  MANTA_NEED_GPU(api);
  if (api->device_count() < 2) GTEST_SKIP() << "one GPU here";
  const int64_t rows = 1 << 20;  // 8 GiB
  Reader reader(api, 1, rows);
  ASSERT_TRUE(api->set_device(1).ok());
  HolderProcess holder(0, rows);
  PushAndMeasure(reader, holder, "nccl", reader.CopyBandwidth(/*other_device=*/0), "a copy from GPU to GPU");
  EXPECT_EQ(reader.log.size(), 1u);
}

TEST(GpuWeights, NcclPeersThatStopOrDieInATransferAreNoticed) {
  MANTA_NEED_GPU(api);
  if (api->device_count() < 2) GTEST_SKIP() << "one GPU here";
  const int64_t rows = 1 << 16;
  Reader reader(api, 1, rows);
  reader.options.device.transfer_timeout = absl::Seconds(4);
  ASSERT_TRUE(api->set_device(1).ok());
  uint64_t version = 0;
  for (const bool dies : {false, true}) {
    auto holder = std::make_unique<HolderProcess>(0, rows);
    ASSERT_EQ(holder->Publish(++version), "ok");
    ASSERT_TRUE(reader.Update(version, holder->address()).ok());
    ASSERT_EQ(holder->Publish(++version), "ok");
    std::thread killer;
    reader.before_write = [&] {
      holder->Signal(SIGSTOP);  // this side's kernels wait for messages that do not come
      killer = std::thread([&] {
        absl::SleepFor(dies ? absl::Seconds(1) : absl::Seconds(6));
        holder->Signal(dies ? SIGKILL : SIGCONT);
      });
    };
    const absl::Time start = absl::Now();
    const auto report = reader.Update(version, holder->address());
    std::printf("  a peer that %s: the transfer ended after %.0f ms; then %s\n", dies ? "dies" : "stops for 6 s",
                reader.write_seconds * 1e3,
                report.ok() ? report->transport.c_str() : std::string(report.status().message()).c_str());
    killer.join();
    EXPECT_LT(absl::Now() - start, absl::Seconds(40));
    reader.before_write = nullptr;
    if (!dies) continue;
    EXPECT_FALSE(report.ok());
    // Both have failed once or twice now: the next version, or the one after, goes by NCCL again.
    holder = std::make_unique<HolderProcess>(0, rows);
    ASSERT_EQ(holder->Publish(++version), "ok");
    const auto again = reader.Update(version, holder->address(), /*verify=*/true);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->transport, "nccl");
    EXPECT_TRUE(reader.Holds(version));
  }
}

}  // namespace
}  // namespace manta

int main(int argc, char** argv) {
  int device = 0;
  int64_t rows = 0;
  if (argc == 4 && std::string(argv[1]) == "--hold" && absl::SimpleAtoi(argv[2], &device) &&
      absl::SimpleAtoi(argv[3], &rows)) {
    return manta::Hold(device, rows);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
