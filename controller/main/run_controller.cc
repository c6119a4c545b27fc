#include "controller/main/run_controller.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/process_info.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "common/rpc/probe_server.h"
#include "controller/main/head.h"
#include "controller/main/job_runner.h"
#include "spdlog/spdlog.h"

namespace manta::controller {
namespace {

constexpr rlim_t kOpenFiles = 65536;
constexpr absl::Duration kShutdownPatience = absl::Seconds(5);
constexpr absl::Duration kWatcherGrace = absl::Seconds(1);  // for the command line to come and to read the last event

class Controller {
 public:
  Controller(ControllerOptions options, Algorithm algorithm)
      : options_(std::move(options)), jobs_(loop_, options_.bin_dir, std::move(algorithm)), ended_(loop_) {}

  absl::Status Run() {
    HeadOptions head{.run_dir = options_.run_dir,
                     .token_file = options_.token_file,
                     .listen = options_.listen,
                     .journal_dir = options_.journal_dir,
                     .discard_journal = options_.discard_journal,
                     .core = {}};
    head.core.expected_nodes = options_.cluster ? 0 : options_.expected_nodes;
    head.core.wait_on_controller_loss = options_.wait_on_loss;
    head.core.node_timeout = options_.node_timeout;
    head.core.actor_timeout = options_.actor_timeout;
    MANTA_ASSIGN_OR_RETURN(head_, Head::Start(loop_, std::move(head), &jobs_, [this](const std::string& reason) {
                             spdlog::info("the cluster has been shut down: {}", reason);
                             ended_.Set(absl::OkStatus());
                           }));
    WatchSignals();
    MANTA_RETURN_IF_ERROR(WatchParent());
    if (!options_.probe_listen.empty()) {
      MANTA_ASSIGN_OR_RETURN(probes_, rpc::ProbeServer::Start(loop_, {.listen = options_.probe_listen,
                                                                      .ready = [this] { return Ready(); }}));
    }
    std::printf("listening %s\n", head_->address().c_str());
    std::fflush(stdout);
    if (!options_.cluster) {  // before the loop answers anyone who asks for it
      jobs_.RunLocal(core::kOnlyJob, options_.run_dir, options_.config_path,
                     [this](const absl::Status& status) { ShutDown(status); });
    }
    const absl::Status result = RunToCompletion(loop_, WaitEnded(this));
    if (!options_.cluster) AwaitWatcher();
    head_->StopServing(kWatcherGrace);
    return result;
  }

 private:
  static Task<absl::Status> WaitEnded(Controller* self) { co_return co_await self->ended_.Wait(); }

  // A run may have ended before whoever started it had a connection to watch it.
  void AwaitWatcher() {
    const absl::StatusOr<RunService::Runs::Run> run = jobs_.Find(core::kOnlyJob);
    const absl::Time until = loop_.Now() + kWatcherGrace;
    while (run.ok() && !run->events->had_listener() && loop_.Now() < until) loop_.RunFor(absl::Milliseconds(20));
  }

  // Whether requests are of use: they are answered, and what they change is kept.
  absl::Status Ready() const {
    if (stopping_) return absl::UnavailableError("stopping");
    return head_->journal().health();
  }

  // Told to end. The local job ends first, and then everything; a cluster's jobs end with it.
  void Stop(const absl::Status& reason) {
    if (stopping_) return;
    stopping_ = true;
    spdlog::info("stopping: {}", std::string(reason.message()));
    jobs_.StopAll(reason);
    if (options_.cluster) ShutDown(absl::OkStatus());
  }

  void ShutDown(const absl::Status& result) {
    // While the journal's disk is full nothing is acknowledged, the end neither.
    loop_.RunAfter(kStopGrace + kShutdownPatience, [this, result] { ended_.Set(result); });
    head_->core().Shutdown(kStopGrace, "the run has ended", [this, result](const absl::StatusOr<v1::Done>& done) {
      if (!done.ok()) spdlog::error("{}", std::string(done.status().message()));
      ended_.Set(result);
    });
  }

  void WatchSignals() {
    signals_.emplace(loop_, std::initializer_list<int>{SIGTERM, SIGINT}, [this](int number) {
      if (number == SIGTERM && options_.leave_on_sigterm) {
        spdlog::info("told to end (SIGTERM): everything stays as it is for the next controller");
        stopping_ = true;
        ended_.Set(absl::OkStatus());
        return;
      }
      Stop(absl::CancelledError(number == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)"));
    });
  }

  absl::Status WatchParent() {
    if (options_.parent_pid == 0) return absl::OkStatus();
    const int fd = OpenPidFd(options_.parent_pid);
    if (fd < 0) return absl::CancelledError("the process that started the controller is gone");
    loop_.WatchReadable(fd, [this, fd] {
      loop_.Unwatch(fd);
      const absl::StatusOr<RunService::Runs::Run> run = jobs_.Find(core::kOnlyJob);
      if (run.ok()) {
        if (run->events->ended()) return;
        run->events->Warning(absl::StrCat("manta run was killed (pid ", options_.parent_pid, "): stopping everything"));
      }
      Stop(absl::CancelledError("manta run was killed"));
    });
    return absl::OkStatus();
  }

  const ControllerOptions options_;
  EventLoop loop_;
  JobRunner jobs_;
  std::unique_ptr<Head> head_;
  std::unique_ptr<rpc::ProbeServer> probes_;
  OneShot<absl::Status> ended_;
  bool stopping_ = false;
  std::optional<SignalWatch> signals_;
};

}  // namespace

absl::Status RunController(ControllerOptions options, Algorithm algorithm) {
  BlockSignals({SIGTERM, SIGINT});
  signal(SIGPIPE, SIG_IGN);
  if (rlimit files{}; getrlimit(RLIMIT_NOFILE, &files) == 0) {  // of which its server takes a quarter for connections
    files.rlim_cur = std::max(files.rlim_cur, std::min<rlim_t>(files.rlim_max, kOpenFiles));
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  // Never destroyed: an algorithm that did not return in time still has frames that refer to it, and so have gRPC's
  // threads. The process ends next.
  auto* controller = new Controller(std::move(options), std::move(algorithm));
  return controller->Run();
}

}  // namespace manta::controller
