#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "common/base/status.h"
#include "common/rpc/tls.h"
#include "controller/main/run_controller.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace manta::controller {

int ControllerMain(int argc, char** argv, Algorithm algorithm) {
  ControllerOptions options;
  std::string run_dir, config, token_file, bin_dir;
  CLI::App app("The Manta controller: runs one configuration on the nodes that join it. `manta run` starts it.");
  app.add_option("--run-dir", run_dir, "the run's folder, which exists")->required();
  app.add_option("--config", config, "the resolved configuration (RUN_DIR/config.resolved.yaml)");
  app.add_option("--token-file", token_file,
                 "the job token (RUN_DIR/token); where it is one role's, token.worker lies beside it");
  app.add_option("--listen", options.listen, "HOST:PORT to serve on; port 0: any");
  app.add_option("--parent-pid", options.parent_pid, "stop the run when this process is gone");
  app.add_option("--expected-nodes", options.expected_nodes, "how many nodes will join");
  double node_timeout = absl::ToDoubleSeconds(options.node_timeout);
  double actor_timeout = absl::ToDoubleSeconds(options.actor_timeout);
  app.add_option("--node-timeout", node_timeout, "seconds of silence after which a node is lost")
      ->check(CLI::PositiveNumber);
  app.add_option("--actor-timeout", actor_timeout, "seconds of silence after which a worker is dead")
      ->check(CLI::PositiveNumber);
  std::string journal_dir, on_loss = "stop";
  app.add_flag("--cluster", options.cluster, "serve a cluster: jobs are submitted to it (manta launch)");
  app.add_option("--journal-dir", journal_dir, "a folder on a local disk for the journal (RUN_DIR)");
  app.add_flag("--discard-journal", options.discard_journal, "begin anew where the journal is damaged");
  app.add_option("--on-controller-loss", on_loss,
                 "what agents do when this process is gone: wait for the next, or stop")
      ->check(CLI::IsMember({"wait", "stop"}))
      ->capture_default_str();
  std::string on_sigterm = "stop";
  app.add_option("--on-sigterm", on_sigterm, "with --cluster: stop everything, or leave it to the next controller")
      ->check(CLI::IsMember({"stop", "leave"}))
      ->capture_default_str();
  app.add_option("--probe-listen", options.probe_listen, "HOST:PORT for HTTP probes: /healthz and /readyz");
  app.add_option("--bin-dir", bin_dir, "where the workers' executables lie (beside this one)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 64;
  }
  options.journal_dir = journal_dir;
  options.leave_on_sigterm = options.cluster && on_sigterm == "leave";
  options.wait_on_loss = options.cluster || on_loss == "wait";
  options.node_timeout = absl::Seconds(node_timeout);
  options.actor_timeout = absl::Seconds(actor_timeout);
  std::error_code error;
  options.run_dir = std::filesystem::absolute(run_dir, error);
  options.config_path = config.empty() ? options.run_dir / "config.resolved.yaml" : std::filesystem::path(config);
  options.token_file = token_file.empty() ? options.run_dir / "token" : std::filesystem::absolute(token_file, error);
  options.bin_dir = bin_dir.empty() ? std::filesystem::read_symlink("/proc/self/exe", error).parent_path()
                                    : std::filesystem::path(bin_dir);
  auto logger = std::make_shared<spdlog::logger>("controller", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));

  absl::Status status = rpc::UseTlsFromEnvironment("", v1::ROLE_ADMIN);
  if (status.ok()) status = RunController(std::move(options), std::move(algorithm));
  if (!status.ok()) std::fprintf(stderr, "manta-controller: error: %s\n", std::string(status.message()).c_str());
  std::fflush(stderr);
  std::fflush(stdout);
  _exit(ExitCode(status));  // see RunController: what is left is not to be destroyed
}

}  // namespace manta::controller
