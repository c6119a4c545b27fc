#include "controller/node/shim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/event_loop.h"
#include "common/rpc/token.h"
#include "controller/node/environment.h"
#include "controller/node/packet_socket.h"
#include "controller/node/shim_worker.h"
#include "controller/node/state_dir.h"
#include "controller/node/stray_children.h"
#include "controller/node/zygote.h"
#include "manta/v1/shim.pb.h"

namespace manta::node {
namespace {

constexpr absl::Duration kOrphanTerm = absl::Seconds(1);   // from SIGTERM to SIGKILL when the agent is gone
constexpr absl::Duration kRetry = absl::Milliseconds(50);  // of what an agent that does not read has not taken
constexpr absl::Duration kLastWords = absl::Seconds(5);    // for it to take them before the shim ends
constexpr absl::Duration kIdlePool = absl::Seconds(60);    // that a pool without workers is kept
constexpr size_t kMaxQueued = 1024;

class Shim {
 public:
  explicit Shim(const ShimConfig& config) : config_(config), agent_(config.agent_fd) {}
  ~Shim() {
    for (int fd : {agent_, listener_, visitor_, signals_}) {
      if (fd >= 0) close(fd);
    }
  }

  int Run() {
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fcntl(agent_, F_SETFD, FD_CLOEXEC);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_SETMASK, &set, nullptr);
    signal(SIGTERM, SIG_DFL);
    for (int ignored : {SIGINT, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    loop_.WatchReadable(signals_, [this] {
      signalfd_siginfo info;
      if (read(signals_, &info, sizeof(info)) > 0) TerminateAll("SIGTERM");
    });
    loop_.WatchReadable(agent_, [this] { ReadAgent(); });
    if (!config_.state_dir.empty()) listener_ = ListenAsShim(config_.state_dir, config_.name);
    if (listener_ >= 0) loop_.WatchReadable(listener_, [this] { Accept(); });
    loop_.Run();
    if (listener_ >= 0) RemoveShimSocket(config_.state_dir, config_.name);
    EndStrayChildren([](pid_t) { return false; }, absl::Seconds(1));
    return 0;
  }

 private:
  using Key = std::pair<std::string, uint64_t>;

  // ---- The agent
  void ReadAgent() {
    for (int i = 0; i < 64; ++i) {
      v1::ShimOrder order;
      switch (ReceiveMessage(agent_, &order)) {
        case Received::kNothing:
          return;
        case Received::kClosed:
          AgentGone();
          return;
        case Received::kMessage:
          OnOrder(order);
      }
    }
  }

  void OnOrder(const v1::ShimOrder& order) {
    switch (order.order_case()) {
      case v1::ShimOrder::kStart:
        Start(order.start());
        break;
      case v1::ShimOrder::kStop:
        if (ShimWorker* worker = Find(order.stop().actor_id(), order.stop().epoch())) {
          worker->Terminate(absl::Milliseconds(order.stop().grace_ms()), /*asked_to_stop=*/true);
        }
        break;
      case v1::ShimOrder::kWorker:
        if (ShimWorker* worker = Find(order.worker().actor().actor_id(), order.worker().actor().epoch())) {
          worker->Order(order.worker().order());
        }
        break;
      case v1::ShimOrder::kLease:
        Lease(absl::Milliseconds(order.lease().ttl_ms()));
        break;
      default:
        break;
    }
  }

  void AgentGone() {
    loop_.Unwatch(agent_);
    close(std::exchange(agent_, -1));
    if (workers_.empty()) {
      loop_.Stop();
      return;
    }
    grace_timer_ = loop_.RunAfter(config_.agent_grace, [this] { TerminateAll("the node agent is gone"); });
  }

  void Report(v1::ActorReport report) {
    const bool may_be_lost = report.worker().has_beat();
    v1::ShimReport message;
    *message.add_actors() = std::move(report);
    if (agent_ < 0) return;  // the next agent gets a snapshot, and exits from their files
    if (queue_.empty() && SendMessage(agent_, message)) return;
    if (may_be_lost || queue_.size() >= kMaxQueued) return;
    queue_.push_back(std::move(message));
    if (queue_.size() == 1) loop_.RunAfter(kRetry, [this] { Flush(); });
  }

  void Flush() {
    if (agent_ < 0) queue_.clear();
    while (!queue_.empty() && SendMessage(agent_, queue_.front())) queue_.pop_front();
    if (!queue_.empty()) {
      loop_.RunAfter(kRetry, [this] { Flush(); });
    } else {
      EndIfIdle();
    }
  }

  // ---- Another agent
  void Accept() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != geteuid()) {
      close(fd);
      return;
    }
    Dismiss();  // one at a time: the newest
    visitor_ = fd;
    loop_.WatchReadable(fd, [this] { ReadVisitor(); });
    visitor_timer_ = loop_.RunAfter(absl::Seconds(2), [this] { Dismiss(); });
  }

  void Dismiss() {
    loop_.Cancel(visitor_timer_);
    if (visitor_ < 0) return;
    loop_.Unwatch(visitor_);
    close(std::exchange(visitor_, -1));
  }

  void ReadVisitor() {
    v1::ShimOrder order;
    const Received received = ReceiveMessage(visitor_, &order);
    if (received == Received::kNothing) return;
    const std::string key = ReadAgentKey(config_.state_dir);
    if (received != Received::kMessage || !order.has_adopt() || key.empty() ||
        !rpc::TokensEqual(order.adopt().agent_key(), key)) {
      Dismiss();
      return;
    }
    const int fd = std::exchange(visitor_, -1);
    loop_.Cancel(visitor_timer_);
    loop_.Unwatch(fd);
    loop_.Cancel(grace_timer_);
    if (agent_ >= 0) {
      loop_.Unwatch(agent_);
      close(agent_);
    }
    agent_ = fd;
    queue_.clear();
    v1::ShimReport snapshots;
    for (const auto& [id, worker] : workers_) *snapshots.add_actors() = worker->Snapshot();
    SendMessage(agent_, snapshots);
    loop_.WatchReadable(agent_, [this] { ReadAgent(); });
  }

  // ---- Workers
  ShimWorker* Find(const std::string& actor_id, uint64_t epoch) {
    const auto found = workers_.find({actor_id, epoch});
    return found == workers_.end() ? nullptr : found->second.get();
  }

  void Start(const v1::StartActor& start) {
    const Key id{start.actor_id(), start.epoch()};
    if (workers_.count(id) > 0) return;  // it runs; the agent knows or will read it in a snapshot
    ShimWorker::Host host{.loop = &loop_,
                          .report = [this](v1::ActorReport report) { Report(std::move(report)); },
                          .ended = [this, id](const v1::ActorReport& exit) { Ended(id, exit); }};
    auto made = std::make_unique<ShimWorker>(std::move(host), start);
    absl::Status status = made->Prepare();
    ShimWorker& worker = *workers_.emplace(id, std::move(made)).first->second;
    if (status.ok()) RecordStart(start);
    if (status.ok() && start.prefork() && UseZygote(start) && zygote_->Fork(worker.Request(), worker.descriptors())) {
      return;  // there will be a process
    }
    if (status.ok()) status = worker.Execute();
    if (!status.ok()) NotStarted(id, status);
  }

  // What is true if this process is killed while there is no agent to see it, written beforehand: the next agent reads
  // it where no living shim has the actor. Its end replaces it.
  void RecordStart(const v1::StartActor& start) {
    if (config_.state_dir.empty()) return;
    v1::ActorReport report;
    report.set_actor_id(start.actor_id());
    report.set_epoch(start.epoch());
    v1::ActorExited* exited = report.mutable_exited();
    exited->set_actor_id(start.actor_id());
    exited->set_epoch(start.epoch());
    exited->set_exit_code(-1);
    exited->set_exit_signal(SIGKILL);
    exited->add_last_lines("manta-shim: killed while no node agent ran, and the worker with it");
    WriteExit(config_.state_dir, report);
  }

  void NotStarted(const Key& id, const absl::Status& status) {
    v1::ActorReport report;
    report.set_actor_id(id.first);
    report.set_epoch(id.second);
    v1::ActorStartFailed* failed = report.mutable_start_failed();
    failed->set_actor_id(id.first);
    failed->set_epoch(id.second);
    failed->set_message(std::string(status.message()));
    Report(std::move(report));
    workers_.erase(id);
    EndIfIdle();
  }

  // ---- The pool: workers of one program are forked from a zygote of it, where it allows that
  bool UseZygote(const v1::StartActor& start) {
    if (zygote_ != nullptr || unfit_) return zygote_ != nullptr;
    zygote_ = std::make_unique<Zygote>(
        Zygote::Host{.loop = &loop_,
                     .forked =
                         [this](const std::string& actor, uint64_t epoch, pid_t pid) {
                           if (ShimWorker* worker = Find(actor, epoch); worker != nullptr && !worker->begun())
                             worker->Forked(pid);
                         },
                     .failed =
                         [this](const std::string& actor, uint64_t epoch, const std::string& why) {
                           NotStarted({actor, epoch}, absl::ResourceExhaustedError(why));
                         },
                     .unfit = [this](const std::string& why) { ZygoteUnfit(why); }});
    WorkerEnvironment environment = BuildEnvironment(OwnEnvironment(), start);
    const absl::Status status = zygote_->Start({.executable = start.executable(),
                                                .env = std::move(environment.variables),
                                                .only_env = true,
                                                .death_signal = SIGKILL,
                                                .new_process_group = true});
    if (status.ok()) return true;
    zygote_ = nullptr;
    unfit_ = true;
    return false;
  }

  void ZygoteUnfit(const std::string& why) {
    unfit_ = true;
    loop_.Post([this, zygote = std::shared_ptr<Zygote>(std::move(zygote_))]() mutable {
      zygote = nullptr;
      std::vector<Key> waiting;
      for (const auto& [id, worker] : workers_) {
        if (!worker->begun()) waiting.push_back(id);
      }
      for (const Key& id : waiting) {
        ShimWorker* worker = Find(id.first, id.second);
        if (worker == nullptr || worker->begun()) continue;
        if (absl::Status status = worker->Execute(); !status.ok()) NotStarted(id, status);
      }
    });
    for (const auto& [id, worker] : workers_) {
      if (!worker->begun()) worker->Log(absl::StrCat("not forked from a loaded program, but started cold: ", why));
    }
  }

  void Ended(const Key& id, const v1::ActorReport& exit) {
    if (!config_.state_dir.empty()) WriteExit(config_.state_dir, exit);
    loop_.Post([this, id] {
      workers_.erase(id);
      // What it has left running has become this process's child. So does a worker that is just being forked.
      const bool forking =
          std::any_of(workers_.begin(), workers_.end(), [](const auto& w) { return !w.second->begun(); });
      if (!forking) EndStrayChildren([this](pid_t pid) { return IsOurs(pid); }, absl::Seconds(1));
      EndIfIdle();
    });
  }

  bool IsOurs(pid_t pid) const {
    if (zygote_ != nullptr && zygote_->pid() == pid) return true;
    return std::any_of(workers_.begin(), workers_.end(), [pid](const auto& w) { return w.second->pid() == pid; });
  }

  void EndIfIdle() {
    if (!workers_.empty()) return;
    const bool holds_pool = zygote_ != nullptr && agent_ >= 0;
    if (!holds_pool && queue_.empty()) return loop_.Stop();
    loop_.Cancel(idle_timer_);
    idle_timer_ = loop_.RunAfter(holds_pool ? kIdlePool : kLastWords, [this] {
      if (workers_.empty()) loop_.Stop();
    });
  }

  void TerminateAll(const std::string& why) {
    if (workers_.empty()) loop_.Stop();
    for (const auto& [id, worker] : workers_) {
      worker->Log(absl::StrCat(why, ": ending the worker"));
      worker->Terminate(kOrphanTerm, /*asked_to_stop=*/false);
    }
  }

  // ---- The lease
  void Lease(absl::Duration ttl) {
    const absl::Time now = loop_.Now();
    if (now >= lease_until_) Fence();  // what runs; what is started from here on has this one
    lease_until_ = now + ttl;
    if (lease_timer_ == 0) CheckLease();
  }

  void CheckLease() {
    lease_timer_ = 0;
    const absl::Duration left = lease_until_ - loop_.Now();
    if (left <= absl::ZeroDuration()) {
      Fence();
    } else {
      lease_timer_ = loop_.RunAfter(left, [this] { CheckLease(); });
    }
  }

  void Fence() {
    for (const auto& [id, worker] : workers_) {
      worker->Fence("the lease of this node has run out: the worker is ended, for another may run in its place");
    }
  }

  const ShimConfig config_;
  EventLoop loop_;
  int agent_, listener_ = -1, visitor_ = -1, signals_ = -1;
  EventLoop::TimerId grace_timer_ = 0, visitor_timer_ = 0, idle_timer_ = 0, lease_timer_ = 0;
  absl::Time lease_until_ = absl::InfiniteFuture();  // none was given
  std::deque<v1::ShimReport> queue_;
  std::map<Key, std::unique_ptr<ShimWorker>> workers_;
  std::unique_ptr<Zygote> zygote_;
  bool unfit_ = false;  // what was to be a zygote was none
};

}  // namespace

int RunShim(const ShimConfig& config) {
  return Shim(config).Run();
}

}  // namespace manta::node
