// bench_placements [SECONDS] [WINDOW]: placement groups created and removed through gRPC against a head with its real
// journal, `WINDOW` pairs in flight; an answer means that its rows are on the disk. Prints pairs a second.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "controller/main/no_jobs_for_test.h"
#include "grpcpp/client_context.h"
#include "manta/v1/cluster.grpc.pb.h"
#include "manta/v1/node.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

namespace fs = std::filesystem;

// One pair after another until the time is over.
struct Chain {
  void Next() {
    if (absl::Now() >= end) {
      done.Notify();
      return;
    }
    create = std::make_unique<grpc::ClientContext>();
    create->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    v1::PlacementRequest& request = placement;
    request.set_key(absl::StrCat(name, "/", ++count));
    stub->async()->CreatePlacement(create.get(), &request, &placed, [this](const grpc::Status& status) {
      MANTA_CHECK(status.ok()) << status.error_message();
      Remove();
    });
  }
  void Remove() {
    remove = std::make_unique<grpc::ClientContext>();
    remove->set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    ref.set_id(placed.id());
    stub->async()->RemovePlacement(remove.get(), &ref, &nothing, [this](const grpc::Status& status) {
      MANTA_CHECK(status.ok()) << status.error_message();
      ++*pairs;
      Next();
    });
  }

  std::string name;
  v1::ClusterService::Stub* stub = nullptr;
  absl::Time end;
  std::atomic<int>* pairs = nullptr;
  std::unique_ptr<grpc::ClientContext> create, remove;
  v1::PlacementRequest placement;
  v1::PlacementReply placed;
  v1::PlacementRef ref;
  v1::Done nothing;
  int count = 0;
  absl::Notification done;
};

void Join(v1::NodeService::Stub* stub, grpc::ClientContext* context, absl::Notification* stop) {
  const auto stream = stub->Join(context);
  v1::NodeEvent event;
  event.mutable_hello()->set_node("n0");
  event.mutable_hello()->set_cpu_slots(1 << 16);
  stream->Write(event);
  std::thread reads([&] {
    v1::NodeCommand command;
    while (stream->Read(&command)) continue;
  });
  for (uint64_t n = 1; !stop->WaitForNotificationWithTimeout(absl::Milliseconds(500)); ++n) {
    event.mutable_beat()->set_sequence(n);
    stream->Write(event);
  }
  context->TryCancel();
  reads.join();
}

int Main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  const int window = argc > 2 ? std::atoi(argv[2]) : 512;
  spdlog::set_level(spdlog::level::warn);
  const fs::path dir = absl::StrCat("bench-placements-", getpid());
  fs::create_directories(dir);
  const std::string token = rpc::CreateTokenFile(dir / "token").value();
  EventLoop loop;
  NoJobs jobs;
  HeadOptions options = LocalHeadOptions(dir);
  auto head = Head::Start(loop, std::move(options), &jobs, [](const std::string&) {});
  MANTA_CHECK(head.ok()) << head.status().ToString();
  std::thread heads([&] { loop.Run(); });
  const auto channel = rpc::OpenChannel((*head)->address(), token).value();
  const auto nodes = v1::NodeService::NewStub(channel);
  const auto stub = v1::ClusterService::NewStub(channel);
  grpc::ClientContext agent_context;
  absl::Notification stop;
  std::thread agent([&] { Join(nodes.get(), &agent_context, &stop); });
  v1::WaitNodesRequest wait;
  wait.set_nodes(1);
  wait.set_timeout_ms(5000);
  grpc::ClientContext wait_context;
  v1::Done joined;
  MANTA_CHECK(stub->WaitNodes(&wait_context, wait, &joined).ok());

  std::atomic<int> pairs{0};
  const absl::Time begin = absl::Now();
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < window; ++i) {
    auto chain = std::make_unique<Chain>();
    chain->name = absl::StrCat("c", i);
    chain->stub = stub.get();
    chain->end = begin + absl::Seconds(seconds);
    chain->pairs = &pairs;
    chain->placement.add_bundles()->set_cpu_slots(1);
    chain->placement.set_deadline_ms(10000);
    chains.push_back(std::move(chain));
  }
  for (const auto& chain : chains) chain->Next();
  for (const auto& chain : chains) chain->done.WaitForNotification();
  const double took = absl::ToDoubleSeconds(absl::Now() - begin);
  const journal::SqliteJournal::Stats stats = (*head)->journal().stats();
  std::printf("%.0f placements created and removed a second (window %d), %.0f commits/s, %.0f rows/s\n", pairs / took,
              window, static_cast<double>(stats.commits) / took, static_cast<double>(stats.rows) / took);
  std::fflush(stdout);
  stop.Notify();
  agent.join();
  fs::remove_all(dir);
  _exit(0);
}

}  // namespace
}  // namespace manta::controller

int main(int argc, char** argv) {
  return manta::controller::Main(argc, argv);
}
