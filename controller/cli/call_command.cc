// `manta call ACTOR METHOD [ARGUMENT]`: one call to an actor of the cluster.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/actor/client.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/token.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/wrappers.pb.h"
#include "nlohmann/json.hpp"

namespace manta::cli {
namespace {

namespace pb = google::protobuf;

struct CallCommandOptions {
  CommonOptions common;
  std::string actor, method, argument, type, reply_type, descriptors;
  int rank = 0;
  double timeout = 30;
};

// Messages by their full names: those of a descriptor set, and the usual small ones (wrappers, Struct, Empty).
class Types {
 public:
  // What `protoc --include_imports --descriptor_set_out=FILE` writes.
  absl::Status Read(const std::string& file) {
    if (file.empty()) return absl::OkStatus();
    MANTA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, uint64_t{64} << 20));
    pb::FileDescriptorSet set;
    if (!set.ParseFromString(bytes)) return UserError(absl::StrCat(file, ": no descriptor set"));
    for (const pb::FileDescriptorProto& proto : set.file()) {
      if (pool_.BuildFile(proto) == nullptr) {
        return UserError(absl::StrCat(file, ": ", proto.name(),
                                      " refers to what is not in it; was it made with "
                                      "--include_imports?"));
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<pb::Message>> New(const std::string& type) {
    // Named, so that the linker keeps them.
    for (const pb::Descriptor* usual :
         {pb::Int64Value::descriptor(), pb::Struct::descriptor(), pb::Empty::descriptor()}) {
      if (usual->full_name() == type) return std::unique_ptr<pb::Message>(factory_.GetPrototype(usual)->New());
    }
    const pb::Descriptor* found = pool_.FindMessageTypeByName(type);
    if (found == nullptr) found = pb::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
    if (found == nullptr) {
      return UserError(
          absl::StrCat("there is no message type ", type, "; --descriptors names a descriptor set with it"));
    }
    return std::unique_ptr<pb::Message>(factory_.GetPrototype(found)->New());
  }

 private:
  pb::DescriptorPool pool_;
  pb::DynamicMessageFactory factory_;
};

// The actor of that name once it is ready.
absl::StatusOr<v1::ActorInfo> FindReady(ClusterClient& client, const CallCommandOptions& options, absl::Time until) {
  const size_t dash = options.actor.rfind('-');
  const bool by_id = dash != std::string::npos && dash + 1 < options.actor.size() &&
                     options.actor.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  v1::ResolveRequest request;
  (by_id ? *request.mutable_actor_id() : *request.mutable_name()) = options.actor;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(until));
  const auto reader = client.cluster().Resolve(&context, request);
  v1::ResolveReply reply;
  bool known = false;
  while (reader->Read(&reply)) {
    known = true;
    if (by_id && reply.ranks().empty()) return FromProto(reply.failed());
    for (const v1::ActorInfo& rank : reply.ranks()) {
      const bool meant = by_id || rank.rank() == options.rank;
      if (!meant || rank.state() != v1::ACTOR_STATE_READY) continue;
      if (rank.address().empty()) {
        return UserError(absl::StrCat(rank.actor_id(), " is a plain program: it has no methods"));
      }
      context.TryCancel();
      return rank;
    }
    if (!reply.ranks().empty() && !by_id && options.rank >= reply.ranks_size()) {
      return UserError(absl::StrCat(options.actor, " has ", reply.ranks_size(), " ranks, not a rank ", options.rank));
    }
  }
  const absl::Status ended = client.Explain(rpc::FromGrpc(reader->Finish()));
  if (!ended.ok() && !absl::IsDeadlineExceeded(ended)) return ended;
  if (known && reply.failed().code() != 0) return FromProto(reply.failed());
  if (known) return absl::DeadlineExceededError(absl::StrCat(options.actor, " is not ready"));
  return absl::NotFoundError(absl::StrCat("nothing is called ", options.actor, "; `manta groups` lists what is there"));
}

absl::Status Call(const CallCommandOptions& options) {
  Types types;
  MANTA_RETURN_IF_ERROR(types.Read(options.descriptors));
  std::string payload = options.argument;
  std::unique_ptr<pb::Message> reply;
  if (!options.type.empty()) {
    MANTA_ASSIGN_OR_RETURN(const std::unique_ptr<pb::Message> request, types.New(options.type));
    MANTA_ASSIGN_OR_RETURN(reply, types.New(options.reply_type.empty() ? options.type : options.reply_type));
    const auto parsed =
        pb::util::JsonStringToMessage(options.argument.empty() ? "{}" : options.argument, request.get());
    if (!parsed.ok()) {
      return UserError(absl::StrCat("the argument is no ", options.type, ": ", std::string(parsed.message())));
    }
    payload = request->SerializeAsString();
  }
  const absl::Time until = absl::Now() + absl::Seconds(options.timeout);
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  MANTA_ASSIGN_OR_RETURN(const std::string token, rpc::ReadTokenFile(client.dir() / "token"));
  MANTA_ASSIGN_OR_RETURN(const v1::ActorInfo found,
                         FindReady(client, options, std::min(until, absl::Now() + kAnswerDeadline)));
  // As every client calls: a large argument finds its way, and the error of a call whose actor dies says how.
  MANTA_ASSIGN_OR_RETURN(const auto caller,
                         actor::Client::Create({.token = token, .head = [&] { return client.address(); }}));
  const actor::ActorHandle handle = caller->ActorAt({found.actor_id(), found.epoch(), found.address()});
  MANTA_ASSIGN_OR_RETURN(std::string bytes,
                         handle.CallBytes(options.method, payload, {.deadline = until - absl::Now()}));
  if (reply != nullptr) {
    if (!reply->ParseFromString(bytes)) {
      return UserError(absl::StrCat("the reply is no ", reply->GetTypeName(), "; --reply names its type"));
    }
    bytes.clear();
    pb::util::JsonPrintOptions print;
    print.preserve_proto_field_names = true;
    if (const auto status = pb::util::MessageToJsonString(*reply, &bytes, print); !status.ok()) {
      return absl::InternalError(std::string(status.message()));
    }
  }
  if (!options.common.json) {
    std::printf("%s%s", bytes.c_str(), bytes.empty() || bytes.back() == '\n' ? "" : "\n");
    return absl::OkStatus();
  }
  nlohmann::json object = {{"actor", found.actor_id()}, {"epoch", found.epoch()}};
  object["reply"] = reply != nullptr ? nlohmann::json::parse(bytes, nullptr, false) : nlohmann::json(bytes);
  std::printf("%s\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return absl::OkStatus();
}

}  // namespace

void AddCall(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<CallCommandOptions>();
  CLI::App* command = app.add_subcommand("call", "Call a method of an actor");
  command->add_option("actor", options->actor, "its group's name, or its own id: JOB/ROLE-RANK")->required();
  command->add_option("method", options->method, "the method's name")->required();
  command->add_option("argument", options->argument, "JSON of --type; without --type the bytes themselves");
  command->add_option("--type", options->type, "the argument's message type: google.protobuf.Int64Value, my.Request");
  command->add_option("--reply", options->reply_type, "the reply's message type (the argument's)");
  command->add_option("--descriptors", options->descriptors,
                      "where they are defined: what `protoc --include_imports --descriptor_set_out=FILE` writes");
  command->add_option("--rank", options->rank, "of a group, which rank")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command->add_option("--timeout", options->timeout, "seconds")->check(CLI::Range(0.001, 1e7))->capture_default_str();
  AddCommonOptions(*command, &options->common);
  command->footer(
      "\nExamples:\n  manta call counter add 5 --type google.protobuf.Int64Value\n"
      "  manta call counter add '{\"value\": 5}' --type my.AddRequest --reply my.AddReply --descriptors counter.desc");
  commands->push_back({command, [options] { return Call(*options); }});
}

}  // namespace manta::cli
