#include "common/actor/worker.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/actor/actor_service.h"
#include "common/actor/client.h"
#include "common/actor/flags.h"
#include "common/actor/shim_link.h"
#include "common/actor/thread_stacks.h"
#include "common/actor/zygote.h"
#include "common/base/check.h"
#include "common/base/process_info.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/tls.h"
#include "common/rpc/token.h"
#include "manta/v1/actor.grpc.pb.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace manta::actor {
namespace {

constexpr absl::Duration kSignalGrace = absl::Seconds(2);  // SIGTERM says no deadline of its own
constexpr absl::Duration kBeatInterval = absl::Seconds(1);
constexpr absl::Duration kLongestGrace = absl::Minutes(10);

}  // namespace

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s: error: %s\n", program_invocation_short_name, std::string(status.message()).c_str());
  return ExitCode(status);
}

class Worker::Impl {
 public:
  explicit Impl(WorkerFlags flags, std::string token)
      : flags(std::move(flags)),
        token(std::move(token)),
        control({.loop = &loop,
                 .actor_id = this->flags.actor_id,
                 .epoch = this->flags.epoch,
                 .beat = [this] { return Beat(); },
                 .stop =
                     [this](const v1::StopRequest& request) {
                       BeginStop(request.reason(), absl::Milliseconds(request.deadline_ms()), 0);
                     },
                 .peer_lost = [this](const v1::PeerLostRequest& request) { LostPeer(request); }}) {}
  ~Impl() {
    if (parent_fd >= 0) close(parent_fd);
  }

  call::CallServer& Calls() {
    if (calls == nullptr) {
      const char* fault = std::getenv("MANTA_FAULT");  // tests see whether they catch a broken build
      const bool fencing = fault == nullptr || std::string_view(fault) != "no_fencing";
      calls = std::make_unique<call::CallServer>(
          call::CallServer::Options{.actor_id = flags.actor_id, .epoch = flags.epoch, .fencing = fencing});
    }
    return *calls;
  }

  // Over lanes, methods and what the worker adds.
  v1::WorkerBeat WorkerBeat() const {
    v1::WorkerBeat beat;
    beat.set_state(control.state());
    uint64_t running = 0;
    for (const auto& lane : lanes) {
      running += lane->running();
      beat.set_queued(beat.queued() + lane->queued());
      beat.set_completed(beat.completed() + lane->completed());
    }
    if (calls != nullptr) {
      const call::CallServer::Stats stats = calls->stats();
      running += stats.running;
      beat.set_queued(beat.queued() + stats.queued + stats.running);
      beat.set_completed(beat.completed() + stats.completed);
      beat.set_refused(stats.refused);
    }
    if (on_beat) {
      const Load load = on_beat();
      running += load.running;
      beat.set_completed(beat.completed() + load.done);
    }
    beat.set_running(static_cast<uint32_t>(std::min<uint64_t>(running, UINT32_MAX)));
    beat.set_resident(ResidentBytes());
    return beat;
  }
  v1::ActorBeat Beat() const {
    const v1::WorkerBeat now = WorkerBeat();
    v1::ActorBeat beat;
    beat.set_queued_calls(now.queued());
    beat.set_completed_calls(now.completed());
    beat.set_resident_bytes(now.resident());
    return beat;
  }

  void BeginStop(const std::string& reason, absl::Duration grace, int code) {
    if (stopping) return;
    stopping = true;
    exit_code = code;
    deadline = absl::Now() + std::clamp(grace, absl::ZeroDuration(), kLongestGrace);
    spdlog::info("stopping: {}", reason);
    // Whatever hangs, destructors after main among it, this process is gone by its deadline.
    std::thread([until = deadline, code] {
      absl::SleepFor(until - absl::Now());
      _exit(code);
    }).detach();
    control.set_state(v1::ACTOR_STATE_DRAINING);
    if (on_stop) on_stop();
    for (const auto& lane : lanes) lane->Close();
    control.EndBeats();
    // The loop goes on meanwhile: a Watch that has just come must be finished, or the shutdown would wait for it.
    shutdown = std::thread([this, reason] {
      const auto left = [this] {
        return std::max(deadline - absl::Now() - absl::Milliseconds(200), absl::ZeroDuration());
      };
      if (calls != nullptr) calls->Stop(left(), reason);
      server->Shutdown(left());
      if (calls != nullptr) calls->Join();
      loop.Stop();
    });
  }

  // ---- By way of the shim
  void WatchShim() {
    if (shim == nullptr) return;
    shim->Watch(
        loop, [this](const v1::WorkerOrder& order) { OnOrder(order); },
        [this] { BeginStop("its shim is gone", kSignalGrace, 0); });
    v1::WorkerReport report;
    report.mutable_ready()->set_address(server->address());
    if (calls != nullptr) {
      for (const v1::MethodInfo& method : calls->methods()) *report.mutable_ready()->add_methods() = method;
    }
    shim->Send(report);
    ReportBeat();
  }
  void OnOrder(const v1::WorkerOrder& order) {
    if (order.has_stop()) {
      BeginStop(order.stop().reason(), absl::Milliseconds(order.stop().deadline_ms()), 0);
    } else if (order.has_drain()) {
      BeginStop("it is drained", absl::Milliseconds(order.drain().deadline_ms()), 0);
    } else if (order.has_peer_lost() && order.peer_lost().epoch() == flags.epoch) {
      LostPeer(order.peer_lost());
    } else if (order.has_fence() && calls != nullptr) {
      calls->RaiseFence(order.fence().group(), order.fence().min_epoch());
    }
  }
  void LostPeer(const v1::PeerLostRequest& request) {
    spdlog::error("rank {} of this group is lost: {}", request.rank(), request.reason());
    if (on_peer_lost) on_peer_lost(request.rank(), request.reason());
  }
  void ReportBeat() {
    v1::WorkerReport report;
    if (const int64_t now = step; now != reported_step) {
      report.mutable_progress()->set_step(now);
      if (shim->Send(report)) reported_step = now;
    }
    *report.mutable_beat() = WorkerBeat();
    shim->Send(report);
    loop.RunAfter(kBeatInterval, [this] { ReportBeat(); });
  }

  void WatchSignals() {
    signals.emplace(loop, std::initializer_list<int>{SIGTERM, SIGINT},
                    [this](int number) { BeginStop(number == SIGTERM ? "SIGTERM" : "SIGINT", kSignalGrace, 0); });
  }

  void WatchParent() {
    if (flags.parent_pid == 0) return;
    parent_fd = OpenPidFd(flags.parent_pid);
    if (parent_fd < 0) {
      BeginStop("its parent is gone", absl::ZeroDuration(), 0);
      return;
    }
    loop.WatchReadable(parent_fd, [this] {
      loop.Unwatch(parent_fd);
      BeginStop("its parent is gone", kSignalGrace, 0);
    });
  }

  int Run() {
    rpc::ServerOptions options{.listen = flags.listen, .token = token};
    if (calls != nullptr) {
      options.configure = calls->Configure();
      services.push_back(calls->service());
    }
    // gRPC's callback threads would take the call plane's events from its own thread, which costs each call a hop: a
    // worker that serves nothing else does without them. Its shim, or SIGTERM, stops it.
    if (services.size() > 1 || calls == nullptr) services.push_back(&control);
    auto started = rpc::Server::Start(options, services);
    if (!started.ok()) return Fail(started.status());
    server = std::move(*started);
    if (calls != nullptr) calls->Start();
    loop.Post([this] {
      WatchSignals();
      WatchParent();
      control.set_state(v1::ACTOR_STATE_READY);
      control.StartBeats();
      std::printf("listening %s\n", server->address().c_str());
      std::fflush(stdout);
      WatchShim();
    });
    loop.Run();
    if (shutdown.joinable()) shutdown.join();
    return exit_code;
  }

  const WorkerFlags flags;
  const std::string token;
  EventLoop loop;
  ControlService control;
  std::vector<grpc::Service*> services;
  std::unique_ptr<call::CallServer> calls;  // null where the worker has no methods of its own
  std::mutex client_mu;
  std::unique_ptr<Client> client;
  std::vector<std::unique_ptr<Lane>> lanes;
  std::function<void()> on_stop;
  std::function<void(int, const std::string&)> on_peer_lost;
  std::function<Load()> on_beat;
  std::atomic<int64_t> step = -1;
  int64_t reported_step = -1;  // the loop's
  std::unique_ptr<rpc::Server> server;
  std::unique_ptr<ShimLink> shim;  // null where no shim has started this process
  std::thread shutdown;
  bool stopping = false;
  int exit_code = 0;
  absl::Time deadline = absl::InfinitePast();
  std::optional<SignalWatch> signals;
  int parent_fd = -1;
};

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::printf(
        "%s: a worker of a Manta run. The node agent starts it; by itself it runs as\n"
        "  %s --standalone --token-file FILE [--actor-id ROLE-RANK] [--listen 127.0.0.1:0] [--parent-pid PID]\n"
        "and says on its first line where it listens. `manta run` and `manta generate` do all that.\n",
        program_invocation_short_name, program_invocation_short_name);
    std::exit(0);
  }
  std::vector<std::string> args(argv + 1, argv + argc);
  if (auto forked = MaybeServeAsZygote()) args.assign(forked->begin() + 1, forked->end());
  // Before any thread is there, so that every one inherits the mask.
  BlockSignals({SIGTERM, SIGINT});
  signal(SIGPIPE, SIG_IGN);
  InstallStackHandler();
  auto logger = std::make_shared<spdlog::logger>("worker", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));

  MANTA_ASSIGN_OR_RETURN(WorkerFlags flags, ParseWorkerFlags(args));
  if (!flags.standalone) MANTA_RETURN_IF_ERROR(rpc::UseTlsFromEnvironment("", v1::ROLE_WORKER));
  MANTA_ASSIGN_OR_RETURN(std::string token, rpc::ReadTokenFile(flags.token_file));
  auto impl = std::make_unique<Impl>(std::move(flags), std::move(token));
  if (!impl->flags.standalone) impl->shim = ShimLink::FromEnvironment();
  return std::unique_ptr<Worker>(new Worker(std::move(impl)));
}

Worker::Worker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Worker::~Worker() = default;

Lane& Worker::AddLane(std::string name, int num_threads, size_t capacity) {
  impl_->lanes.push_back(std::make_unique<Lane>(std::move(name), num_threads, capacity));
  return *impl_->lanes.back();
}
void Worker::Register(grpc::Service* service) {
  impl_->services.push_back(service);
}
void Worker::SetCallLane(const std::string& name, LaneOptions options) {
  impl_->Calls().AddLane(name, options);
}
void Worker::AddMethod(const std::string& method, MethodOptions options, call::Handler handler) {
  impl_->Calls().AddMethod(method, std::move(options), std::move(handler));
}
absl::StatusOr<Client*> Worker::client() {
  std::lock_guard lock(impl_->client_mu);
  if (impl_->client == nullptr) {
    Client::Options options{.token = impl_->token};
    options.caller.set_actor_id(impl_->flags.actor_id);
    options.caller.set_epoch(impl_->flags.epoch);
    if (!impl_->flags.controller.empty()) options.head = [head = impl_->flags.controller] { return head; };
    MANTA_ASSIGN_OR_RETURN(impl_->client, Client::Create(std::move(options)));
  }
  return impl_->client.get();
}
absl::StatusOr<call::CallClient*> Worker::call_client() {
  MANTA_ASSIGN_OR_RETURN(Client * client, this->client());
  return &client->calls();
}
void Worker::OnStop(std::function<void()> callback) {
  impl_->on_stop = std::move(callback);
}
void Worker::OnPeerLost(std::function<void(int, const std::string&)> callback) {
  impl_->on_peer_lost = std::move(callback);
}
void Worker::OnBeat(std::function<Load()> callback) {
  impl_->on_beat = std::move(callback);
}
void Worker::ReportProgress(int64_t step) {
  impl_->step = step;
}
int Worker::Run() {
  return impl_->Run();
}

const std::string& Worker::actor_id() const {
  return impl_->flags.actor_id;
}
int Worker::rank() const {
  return impl_->flags.rank;
}
uint64_t Worker::epoch() const {
  return impl_->flags.epoch;
}
const std::string& Worker::token() const {
  return impl_->token;
}
const std::vector<std::string>& Worker::args() const {
  return impl_->flags.rest;
}
const std::string& Worker::address() const {
  return impl_->server->address();
}
absl::StatusOr<std::shared_ptr<grpc::Channel>> Worker::OpenChannel(const std::string& address) const {
  return rpc::OpenChannel(address, impl_->token);
}
EventLoop& Worker::loop() {
  return impl_->loop;
}
void Worker::Shutdown(const std::string& reason, int exit_code) {
  impl_->loop.Post([impl = impl_.get(), reason, exit_code] { impl->BeginStop(reason, kSignalGrace, exit_code); });
}

}  // namespace manta::actor
