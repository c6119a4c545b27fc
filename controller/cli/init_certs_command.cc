// `manta init-certs`: what the processes of a cluster of several machines show one another: certificates of a CA of its
// own, and a token a role.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/rpc/certificates.h"
#include "common/rpc/keys.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/terminal.h"
#include "nlohmann/json.hpp"

namespace manta::cli {
namespace {

struct InitCertsOptions {
  std::string dir, job;
  std::vector<std::string> nodes;
  double days = 30;
  bool add_ca = false, drop_old_ca = false, json = false;
};

// A folder that has certificates keeps its job's name and renews those of all its nodes.
absl::Status TakeOver(InitCertsOptions& options) {
  if (!std::filesystem::exists(std::filesystem::path(options.dir) / "ca.pem")) {
    if (options.job.empty()) options.job = "manta";
    return absl::OkStatus();
  }
  MANTA_ASSIGN_OR_RETURN(const std::vector<rpc::CertificateName> holders, rpc::HoldersIn(options.dir));
  for (const rpc::CertificateName& holder : holders) {
    if (options.job.empty()) options.job = holder.job;
    if (holder.job != options.job) {
      return UserError(absl::StrCat(options.dir, " holds certificates of job ", holder.job, ", not of ", options.job,
                                    "; give another folder"));
    }
    if (holder.role == v1::ROLE_NODE && holder.name != rpc::RoleName(v1::ROLE_NODE))
      options.nodes.push_back(holder.name);
  }
  std::sort(options.nodes.begin(), options.nodes.end());
  options.nodes.erase(std::unique(options.nodes.begin(), options.nodes.end()), options.nodes.end());
  return absl::OkStatus();
}

absl::Status InitCerts(InitCertsOptions options) {
  MANTA_RETURN_IF_ERROR(TakeOver(options));
  const rpc::CaStep step = options.add_ca        ? rpc::CaStep::kAdd
                           : options.drop_old_ca ? rpc::CaStep::kDropOld
                                                 : rpc::CaStep::kKeep;
  rpc::CertificateOptions certificates{.job = options.job, .nodes = options.nodes};
  certificates.valid = absl::Hours(24 * options.days);
  MANTA_RETURN_IF_ERROR(rpc::InitCertificates(options.dir, certificates, step));
  if (step == rpc::CaStep::kKeep) MANTA_RETURN_IF_ERROR(rpc::RoleTokens::InFolder(options.dir).status());
  MANTA_ASSIGN_OR_RETURN(const absl::Time until, rpc::ValidUntil(std::filesystem::path(options.dir) / "admin.pem"));
  MANTA_ASSIGN_OR_RETURN(const absl::Time ca_until, rpc::ValidUntil(std::filesystem::path(options.dir) / "ca.pem"));
  if (ca_until < until) {
    PrintWarning(absl::StrCat("the CA is valid until ", absl::FormatTime("%Y-%m-%d", ca_until, absl::UTCTimeZone()),
                              ", and its certificates no longer: replace it (--add-ca)"));
  }
  const std::string valid = absl::FormatTime("%Y-%m-%d %H:%M UTC", until, absl::UTCTimeZone());
  if (options.json) {
    std::printf("%s\n",
                nlohmann::json({{"dir", options.dir}, {"job", options.job}, {"valid_until", valid}}).dump().c_str());
    return absl::OkStatus();
  }
  switch (step) {
    case rpc::CaStep::kKeep:
      std::printf(
          "%s: certificates of job %s for every role%s, valid until %s, and a token a role\n"
          "keep ca.key and secret to yourself; MANTA_TLS_DIR names the folder to processes\n",
          options.dir.c_str(), options.job.c_str(), options.nodes.empty() ? "" : " and the nodes named", valid.c_str());
      break;
    case rpc::CaStep::kAdd:
      std::printf(
          "%s: a new CA is trusted beside the old one; run this again without --add-ca once every process has\n"
          "seen the new ca.pem: the certificates are then the new CA's\n",
          options.dir.c_str());
      break;
    case rpc::CaStep::kDropOld:
      std::printf("%s: the newest CA alone is trusted\n", options.dir.c_str());
      break;
  }
  return absl::OkStatus();
}

}  // namespace

void AddInitCerts(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<InitCertsOptions>();
  CLI::App* command =
      app.add_subcommand("init-certs", "Make or renew the certificates that processes on several machines need");
  command->add_option("dir", options->dir, "the folder to write them to")->required();
  command->add_option("--job", options->job,
                      "the name that they carry; another job's are refused (the folder's; of a new one: manta)");
  command->add_option("--nodes", options->nodes, "nodes that get a certificate of their own");
  command->add_option("--days", options->days, "how long they are valid")
      ->check(CLI::Range(0.01, 3650.0))
      ->capture_default_str();
  auto* add = command->add_flag("--add-ca", options->add_ca, "trust a new CA too: the first step of replacing it");
  command->add_flag("--drop-old-ca", options->drop_old_ca, "trust the newest CA alone: the last step")->excludes(add);
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(
      "\nThe folder then holds ca.pem; admin, node, worker and reader .pem and .key; a .pem and .key a named node; "
      "and\n"
      "the tokens token (admin), token.node, token.worker, token.reader. Who needs what:\n"
      "  the controller, and who operates it   ca.pem admin.pem admin.key token token.worker\n"
      "  a node                                ca.pem node.pem node.key (or NAME.*) worker.pem worker.key token.node\n"
      "\nRun it again to renew the certificates: processes take the new files over within two seconds, none is "
      "restarted. To "
      "replace\n"
      "the CA, with time in between for the files to reach every machine:\n"
      "  manta init-certs certs --add-ca\n"
      "  manta init-certs certs\n"
      "  manta init-certs certs --drop-old-ca\n"
      "\nExample:\n  manta init-certs certs --job nightly --nodes node-1 node-2\n"
      "  MANTA_TLS_DIR=$PWD/certs manta launch --dir certs --listen 0.0.0.0:7400");
  commands->push_back({command, [options] { return InitCerts(*options); }});
}

}  // namespace manta::cli
