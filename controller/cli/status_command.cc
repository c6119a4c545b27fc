// `manta status`.
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/status.h"
#include "common/rpc/status.h"
#include "common/rpc/token.h"
#include "controller/cli/channels.h"
#include "controller/cli/run_command.h"
#include "controller/cli/run_dir.h"
#include "controller/cli/terminal.h"
#include "grpcpp/client_context.h"
#include "manta/v1/controller.grpc.pb.h"

namespace manta::cli {
namespace {

std::string StateName(v1::ActorState state) {
  std::string name = v1::ActorState_Name(state);
  if (absl::StartsWith(name, "ACTOR_STATE_")) name.erase(0, 12);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

void Print(const v1::GetStatusReply& reply) {
  std::printf("run      %s\nprogram  %s", reply.run_dir().c_str(), reply.algorithm().c_str());
  if (reply.num_steps() > 0) {  // known once the loop has begun; an evaluation has none
    std::printf(", step %lld of %lld", static_cast<long long>(reply.step()), static_cast<long long>(reply.num_steps()));
  }
  std::printf("\n\n");
  std::printf("%-16s %-6s %-12s %s\n", "node", "alive", "cpu slots", "gpus");
  for (const v1::NodeStatus& node : reply.nodes()) {
    std::printf("%-16s %-6s %d of %-7d %d of %d\n", node.node().c_str(), node.alive() ? "yes" : "no", node.cpu_slots_used(),
                node.cpu_slots(), node.gpus_used(), node.gpus_size());
  }
  std::printf("\n%-16s %-16s %-10s %-8s %-8s %s\n", "actor", "node", "state", "pid", "queued", "memory");
  for (const v1::ActorStatus& actor : reply.actors()) {
    std::printf("%-16s %-16s %-10s %-8lld %-8llu %llu MiB\n", actor.actor_id().c_str(), actor.node().c_str(),
                StateName(actor.state()).c_str(), static_cast<long long>(actor.pid()),
                static_cast<unsigned long long>(actor.queued_calls()), static_cast<unsigned long long>(actor.resident_bytes() >> 20));
  }
}

absl::Status StatusOf(std::filesystem::path run_dir) {
  std::error_code error;
  if (std::filesystem::exists(run_dir / "latest", error)) run_dir /= "latest";
  MANTA_ASSIGN_OR_RETURN(const std::string address, ReadControllerAddress(run_dir));
  MANTA_ASSIGN_OR_RETURN(const std::string token, rpc::ReadTokenFile(run_dir / "token"));
  MANTA_ASSIGN_OR_RETURN(const auto channel, OpenLastingChannel(address, token));
  const auto stub = v1::ControllerService::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(5)));
  v1::GetStatusReply reply;
  const absl::Status status = rpc::FromGrpc(stub->GetStatus(&context, v1::GetStatusRequest(), &reply));
  if (absl::IsUnavailable(status)) {
    return absl::NotFoundError(absl::StrCat(run_dir.string(), ": its run has ended (nothing answers at ", address, ")"));
  }
  MANTA_RETURN_IF_ERROR(status);
  Print(reply);
  return absl::OkStatus();
}

}  // namespace

int Status(const std::string& run_dir) { return PrintError(StatusOf(run_dir)); }

}  // namespace manta::cli
