#include "tests/bench/actor/placements.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

namespace manta::bench {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(30);

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench_actor: a placement failed: %s\n", status.error_message().c_str());
  std::exit(69);
}

// One pair after another until the time is over.
class Chain {
 public:
  Chain(std::string name, v1::ClusterService::Stub* stub, std::atomic<bool>* stop, std::atomic<int64_t>* pairs,
        absl::BlockingCounter* done)
      : name_(std::move(name)), stub_(stub), stop_(stop), pairs_(pairs), done_(done) {
    request_.add_bundles()->set_cpu_slots(1);
  }

  void Next() {
    if (stop_->load(std::memory_order_relaxed)) {
      done_->DecrementCount();
      return;
    }
    request_.set_key(absl::StrCat(name_, "/", ++count_));
    stub_->async()->CreatePlacement(NewContext(), &request_, &placed_, [this](const grpc::Status& status) {
      Check(status);
      ref_.set_id(placed_.id());
      stub_->async()->RemovePlacement(NewContext(), &ref_, &nothing_, [this](const grpc::Status& status) {
        Check(status);
        pairs_->fetch_add(1, std::memory_order_relaxed);
        Next();
      });
    });
  }

 private:
  grpc::ClientContext* NewContext() {
    context_[which_ ^= 1].emplace();  // the other one is of the call whose completion this may run in
    context_[which_]->set_deadline(absl::ToChronoTime(absl::Now() + kDeadline));
    return &*context_[which_];
  }

  const std::string name_;
  v1::ClusterService::Stub* const stub_;
  std::atomic<bool>* const stop_;
  std::atomic<int64_t>* const pairs_;
  absl::BlockingCounter* const done_;
  std::optional<grpc::ClientContext> context_[2];
  int which_ = 0, count_ = 0;
  v1::PlacementRequest request_;
  v1::PlacementReply placed_;
  v1::PlacementRef ref_;
  v1::Done nothing_;
};

}  // namespace

double PlacementsPerSecond(const testing::LaunchedCluster& cluster, int window, double seconds) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> pairs{0};
  absl::BlockingCounter done(window);
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < window; ++i) {
    chains.push_back(std::make_unique<Chain>(absl::StrCat("c", i), cluster.stub(), &stop, &pairs, &done));
  }
  for (const auto& chain : chains) chain->Next();
  absl::SleepFor(absl::Milliseconds(300));
  const int64_t before = pairs.load();
  const absl::Time begin = absl::Now();
  absl::SleepFor(absl::Seconds(seconds));
  const double rate = static_cast<double>(pairs.load() - before) / absl::ToDoubleSeconds(absl::Now() - begin);
  stop = true;
  done.Wait();
  return rate;
}

}  // namespace manta::bench
