// ControllerService as the head serves it: how the jobs that run here are doing, and their events as they come.
//
// Thread-safe; must outlive the server, as the loop and the core must.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/event_loop.h"
#include "controller/cluster/run_events.h"
#include "controller/core/core.h"
#include "manta/v1/controller.grpc.pb.h"

namespace manta::controller {

class RunService final : public v1::ControllerService::CallbackService {
 public:
  // The jobs whose code runs, or ran, in this process. On the loop.
  class Runs {
   public:
    struct Run {
      std::string job;
      std::string run_dir;
      std::shared_ptr<RunEvents> events;
    };
    virtual ~Runs() = default;
    // `job` empty: the only one. NOT_FOUND says which there are.
    virtual absl::StatusOr<Run> Find(const std::string& job) = 0;
    virtual void Stop(const std::string& job, const std::string& reason) = 0;
  };

  RunService(EventLoop& loop, core::Core* core, Runs* runs) : loop_(loop), core_(core), runs_(runs) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::GetStatusReply* reply) override;
  grpc::ServerWriteReactor<v1::RunEvent>* WatchRun(grpc::CallbackServerContext* context,
                                                   const v1::WatchRunRequest* request) override;
  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context, const v1::StopRunRequest* request,
                                    v1::StopRunReply* reply) override;

 private:
  struct Watcher;
  void Feed(const std::shared_ptr<Watcher>& watcher);
  v1::GetStatusReply Status(const Runs::Run& run) const;

  EventLoop& loop_;
  core::Core* const core_;
  Runs* const runs_;
};

}  // namespace manta::controller
