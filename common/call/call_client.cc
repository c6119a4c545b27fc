#include "common/call/call_client.h"

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "common/call/peer.h"

namespace manta::call {
namespace {

constexpr absl::Duration kGoodbye = absl::Milliseconds(200);

std::string RandomCallerId() {
  std::random_device device;
  std::string id;
  while (id.size() < 16) id.push_back(static_cast<char>(device()));
  return id;
}

}  // namespace

class CallClient::Impl {
 public:
  explicit Impl(Options o)
      : shared(
            std::move(o), [this] { Tick(); }, [this] { return calls.load(std::memory_order_relaxed) > 0; }) {}
  ~Impl();
  void Tick();

  std::atomic<int64_t> calls{0};  // peers that are busy; an estimate
  std::mutex mu;
  std::map<std::tuple<std::string, std::string, uint64_t>, std::shared_ptr<OwnedPeer>> peers;
  ClientShared shared;  // last: its thread uses the rest
};

void CallClient::Impl::Tick() {
  std::vector<std::shared_ptr<OwnedPeer>> all;
  {
    std::lock_guard lock(mu);
    for (auto it = peers.begin(); it != peers.end();) {
      const bool failed = it->second->failed();
      if (!failed) all.push_back(it->second);
      it = failed ? peers.erase(it) : std::next(it);
    }
  }
  int64_t busy = 0;
  for (const auto& peer : all) {
    peer->Tick();
    if (peer->busy()) ++busy;
  }
  calls.store(busy, std::memory_order_relaxed);
}

CallClient::Impl::~Impl() {
  std::vector<std::shared_ptr<OwnedPeer>> all;
  {
    std::lock_guard lock(mu);
    for (const auto& [name, peer] : peers) all.push_back(peer);
    peers.clear();
  }
  for (const auto& peer : all) peer->SayGoodbye();
  const absl::Time until = absl::Now() + kGoodbye;
  for (const auto& peer : all) {
    while (!peer->gone() && absl::Now() < until) absl::SleepFor(absl::Milliseconds(1));
    peer->Fail(absl::CancelledError("the caller's client was closed"));
  }
  shared.poller.Shutdown();
}

CallClient::CallClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CallClient::~CallClient() = default;

absl::StatusOr<std::unique_ptr<CallClient>> CallClient::Create(Options options) {
  if (options.token.empty()) return absl::FailedPreconditionError("a caller needs the job's token");
  if (options.caller.id().empty()) options.caller.set_id(RandomCallerId());
  return std::unique_ptr<CallClient>(new CallClient(std::make_unique<Impl>(std::move(options))));
}

absl::StatusOr<std::shared_ptr<Peer>> CallClient::Connect(const std::string& address, const std::string& actor_id,
                                                          uint64_t epoch) {
  std::lock_guard lock(impl_->mu);
  std::shared_ptr<OwnedPeer>& peer = impl_->peers[{address, actor_id, epoch}];
  if (peer != nullptr && !peer->failed()) return std::shared_ptr<Peer>(peer);
  peer = MakePeer(&impl_->shared, address, actor_id, epoch);
  impl_->calls.fetch_add(1);
  if (const absl::Status open = peer->Open(); !open.ok()) {
    impl_->peers.erase({address, actor_id, epoch});
    return open;
  }
  return std::shared_ptr<Peer>(peer);
}

void CallClient::FailActor(const std::string& actor_id, uint64_t epoch, const absl::Status& why) {
  std::vector<std::shared_ptr<OwnedPeer>> gone;
  {
    std::lock_guard lock(impl_->mu);
    for (const auto& [name, peer] : impl_->peers) {
      if (std::get<1>(name) == actor_id && std::get<2>(name) == epoch) gone.push_back(peer);
    }
  }
  for (const auto& peer : gone) peer->Fail(why);
}

grpc::CompletionQueue* CallClient::queue() {
  return impl_->shared.poller.queue();
}

void CallClient::RunUntil(const std::function<void(std::function<void()> notify)>& start) {
  ClientPoller::Waiter waiter;
  start([&waiter] { waiter.Notify(); });
  impl_->shared.poller.Wait(waiter);
}

}  // namespace manta::call
