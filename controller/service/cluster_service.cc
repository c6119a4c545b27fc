#include "controller/service/cluster_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "controller/service/pending_reply.h"
#include "grpcpp/server_context.h"

namespace manta::controller {
namespace {

// Runs `handle(request, answer)` on the loop.
template <typename Request, typename Reply, typename Handle>
grpc::ServerUnaryReactor* OnLoop(EventLoop& loop, grpc::CallbackServerContext* context, const Request* request,
                                 Reply* reply, Handle handle) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop.Post([request = *request, answer = PendingReply<Reply>(reactor, reply), handle = std::move(handle)]() mutable {
    handle(std::move(request), std::move(answer));
  });
  return reactor;
}

absl::Duration Milliseconds(int64_t ms) {
  return absl::Milliseconds(std::max<int64_t>(0, ms));
}

}  // namespace

grpc::ServerUnaryReactor* ClusterService::CreatePlacement(grpc::CallbackServerContext* context,
                                                          const v1::PlacementRequest* request,
                                                          v1::PlacementReply* reply) {
  return OnLoop(loop_, context, request, reply, [this](v1::PlacementRequest request, auto answer) {
    core_->CreatePlacement(std::move(request), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::RemovePlacement(grpc::CallbackServerContext* context,
                                                          const v1::PlacementRef* request, v1::Done* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::PlacementRef& request, auto answer) {
    core_->RemovePlacement(request.id(), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::CreateGroup(grpc::CallbackServerContext* context,
                                                      const v1::GroupRequest* request, v1::GroupReply* reply) {
  return OnLoop(loop_, context, request, reply, [this](v1::GroupRequest request, auto answer) {
    core_->CreateGroup(std::move(request), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::RemoveGroup(grpc::CallbackServerContext* context, const v1::GroupRef* request,
                                                      v1::Done* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::GroupRef& request, auto answer) {
    const std::string job = request.job().empty() ? core::kOnlyJob : request.job();  // as CreateGroup does
    core_->RemoveGroup({.job = job, .role = request.role()}, Milliseconds(request.grace_ms()), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::SubmitJob(grpc::CallbackServerContext* context,
                                                    const v1::SubmitRequest* request, v1::JobInfo* reply) {
  return OnLoop(loop_, context, request, reply, [this](v1::SubmitRequest request, auto answer) {
    core_->SubmitJob(std::move(request), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::StopJob(grpc::CallbackServerContext* context, const v1::JobRef* request,
                                                  v1::Done* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::JobRef& request, auto answer) {
    core_->StopJob(request.job(), request.reason().empty() ? "told to stop" : request.reason(), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::List(grpc::CallbackServerContext* context, const v1::ListRequest* request,
                                               v1::ListReply* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::ListRequest& request, auto answer) {
    v1::ListReply list;
    core_->List(request, &list);
    answer(std::move(list));
  });
}

grpc::ServerUnaryReactor* ClusterService::Describe(grpc::CallbackServerContext* context,
                                                   const v1::DescribeRequest* request, v1::DescribeReply* reply) {
  return OnLoop(loop_, context, request, reply,
                [this](const v1::DescribeRequest& request, auto answer) { answer(core_->Describe(request.what())); });
}

grpc::ServerUnaryReactor* ClusterService::Drain(grpc::CallbackServerContext* context, const v1::DrainRequest* request,
                                                v1::Done* reply) {
  return OnLoop(loop_, context, request, reply,
                [this](const v1::DrainRequest& request, auto answer) { core_->Drain(request, std::move(answer)); });
}

grpc::ServerUnaryReactor* ClusterService::WaitNodes(grpc::CallbackServerContext* context,
                                                    const v1::WaitNodesRequest* request, v1::Done* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::WaitNodesRequest& request, auto answer) {
    core_->WaitNodes(request.nodes(), Milliseconds(request.timeout_ms()), std::move(answer));
  });
}

grpc::ServerUnaryReactor* ClusterService::Counters(grpc::CallbackServerContext* context, const v1::ListRequest* request,
                                                   v1::CounterList* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::ListRequest&, auto answer) {
    v1::CounterList list;
    if (hooks_.counters) {
      for (const auto& [name, value] : hooks_.counters()) (*list.mutable_counters())[name] = value;
    }
    answer(std::move(list));
  });
}

grpc::ServerUnaryReactor* ClusterService::Shutdown(grpc::CallbackServerContext* context,
                                                   const v1::ShutdownRequest* request, v1::Done* reply) {
  return OnLoop(loop_, context, request, reply, [this](const v1::ShutdownRequest& request, auto answer) {
    const std::string reason = request.reason().empty() ? "told to shut down" : request.reason();
    core_->Shutdown(Milliseconds(request.grace_ms()), reason,
                    [this, reason, answer = std::move(answer)](absl::StatusOr<v1::Done> done) mutable {
                      answer(std::move(done));
                      if (hooks_.ended) hooks_.ended(reason);
                    });
  });
}

}  // namespace manta::controller
