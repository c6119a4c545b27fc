#include "controller/node/grpc_uplink.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/channel.h"
#include "controller/node/controller_link.h"
#include "controller/node/probe.h"
#include "manta/v1/node.grpc.pb.h"

namespace manta::node {
namespace {

constexpr absl::Duration kProbe = absl::Seconds(1);

}  // namespace

class GrpcUplink::Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  explicit Attempt(GrpcUplink& owner) : owner_(owner) {}

  void Start() {
    const auto target = owner_.target_();
    if (!target.ok()) return CannotOpen(target.status());
    rpc::Identity identity{.token = target->token};
    identity.servers = rpc::RoleBit(v1::ROLE_ADMIN);  // nobody but the head
    const auto channel = rpc::OpenChannel(target->address, identity);
    if (!channel.ok()) return CannotOpen(channel.status());
    address_ = target->address;
    stub_ = v1::NodeService::NewStub(*channel);
    link_ = ControllerLink::Open(
        owner_.loop_, stub_.get(), [this](const v1::NodeCommand& command) { owner_.on_command(command); },
        [this](const absl::Status& status) { Ended(status); });
  }
  void Send(const v1::NodeEvent& event) {
    if (link_ != nullptr) link_->Send(event);
  }
  void Finish() {
    if (link_ != nullptr) link_->Finish();
  }

 private:
  void CannotOpen(const absl::Status& status) {
    owner_.loop_.Post([weak = weak_from_this(), status] {
      if (const auto self = weak.lock()) self->Down(UplinkLoss::kSilent, status);
    });
  }
  void Ended(const absl::Status& status) {
    if (status.ok()) return Down(UplinkLoss::kHeadGone, status);
    if (IsRejection(status)) return Down(UplinkLoss::kRejected, status);
    Probe(owner_.loop_, address_, kProbe, [weak = weak_from_this(), status](bool refused) {
      if (const auto self = weak.lock()) self->Down(refused ? UplinkLoss::kHeadGone : UplinkLoss::kSilent, status);
    });
  }
  void Down(UplinkLoss loss, const absl::Status& status) {
    const auto self = shared_from_this();  // on_down may open another in this one's place
    if (owner_.attempt_ == self) owner_.attempt_ = nullptr;
    owner_.on_down(loss, status);
  }

  GrpcUplink& owner_;
  std::string address_;
  std::unique_ptr<v1::NodeService::Stub> stub_;
  std::unique_ptr<ControllerLink> link_;
};

GrpcUplink::GrpcUplink(EventLoop& loop, std::function<absl::StatusOr<Target>()> target)
    : loop_(loop), target_(std::move(target)) {}
GrpcUplink::~GrpcUplink() = default;

void GrpcUplink::Open() {
  attempt_ = std::make_shared<Attempt>(*this);
  attempt_->Start();
}
void GrpcUplink::Send(const v1::NodeEvent& event) {
  if (attempt_ != nullptr) attempt_->Send(event);
}
void GrpcUplink::Close() {
  if (attempt_ != nullptr) attempt_->Finish();
}

}  // namespace manta::node
