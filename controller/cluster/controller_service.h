// ControllerService: what the command line asks of a controller. Thread-safe; must outlive the server, as the loop, the
// cluster and the events must.
#pragma once

#include <functional>
#include <string>

#include "common/base/event_loop.h"
#include "controller/cluster/cluster.h"
#include "controller/cluster/run_events.h"
#include "manta/v1/controller.grpc.pb.h"

namespace manta::controller {

class ControllerServiceImpl : public v1::ControllerService::CallbackService {
 public:
  // `stop` is called on the loop.
  ControllerServiceImpl(EventLoop& loop, Cluster& cluster, RunEvents& events,
                        std::function<void(const std::string& reason)> stop)
      : loop_(loop), cluster_(cluster), events_(events), stop_(std::move(stop)) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest* request,
                                      v1::GetStatusReply* reply) override;
  grpc::ServerWriteReactor<v1::RunEvent>* WatchRun(grpc::CallbackServerContext* context,
                                                   const v1::WatchRunRequest* request) override;
  grpc::ServerUnaryReactor* StopRun(grpc::CallbackServerContext* context, const v1::StopRunRequest* request,
                                    v1::StopRunReply* reply) override;

 private:
  struct Watcher;
  void Feed(const std::shared_ptr<Watcher>& watcher);

  EventLoop& loop_;
  Cluster& cluster_;
  RunEvents& events_;
  const std::function<void(const std::string&)> stop_;
};

}  // namespace manta::controller
