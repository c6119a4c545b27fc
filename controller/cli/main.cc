// manta: the command line.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/completion.h"
#include "controller/cli/generate_command.h"
#include "controller/cli/run_command.h"
#include "controller/cli/terminal.h"
#include "controller/cli/version.h"

namespace manta::cli {
namespace {

constexpr int kUsageError = 64;

constexpr char kFooter[] = R"(
Begin here:
  manta run configs/quickstart_grpo.yaml          GRPO on a small model: three minutes on two CPU cores
  manta generate --model DIR --prompt "1+1="      what a model says
  manta launch; manta submit CONFIG --follow      a cluster that stays, and a run as one of its jobs

Exit codes: 0 done, 1 the run failed or was interrupted, 64 something given is wrong, 69 a process or node died, or does
not answer.
`manta COMMAND --help` explains a command with examples.)";

constexpr char kRunFooter[] = R"(
Examples:
  manta run configs/quickstart_grpo.yaml
  manta run configs/quickstart_grpo.yaml grpo.max_num_steps=20 policy.optimizer.kwargs.lr=1e-4
  manta run configs/quickstart_sft.yaml cluster.device=cuda
  manta run my.yaml --check                       is everything there that it names?
  manta run my.yaml --print-config                with every default and interpolation resolved

Overrides: a.b=c sets a key, +a.b=c adds one, ~a.b deletes one; the value is YAML. The program (grpo, sft) is the one
whose tree the file has. Everything a run writes is in LOG_DIR/exp_NNN, with LOG_DIR/latest pointing at the newest:
config.resolved.yaml, metrics.jsonl, plot.svg, tb/ for TensorBoard, logs/. Ctrl-C ends the run in order. A run whose
checkpoint folder has checkpoints goes on from the newest.)";

constexpr char kGenerateFooter[] = R"(
Examples:
  manta generate --model DIR --prompt "Once upon a time" --max-new-tokens 200
  manta generate --model DIR --prompt "What is 2+2?" --temperature 0.8 --top-p 0.95 --seed 7
  manta generate --model results/grpo/step_60/policy/weights --prompt "12+34=" --raw

The prompt goes through the model's chat template where it has one; --raw takes it as it stands. Without --temperature
the most likely token is taken each time, so the text is always the same.)";

std::string CommandLine(int argc, char** argv) {
  std::string out = "manta";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&out, " ", argv[i]);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return out;
}

void AddRunOptions(CLI::App& command, RunOptions& run) {
  command.add_option("config", run.config, "the configuration, a YAML file")->required();
  command.add_option("overrides", run.overrides, "key=value, +key=value or ~key");
  command.add_flag("--check", run.check_only, "look at everything that the run would read, and start nothing");
  command.add_flag("--print-config", run.print_config, "print the resolved configuration, and start nothing");
  command.add_option("--on-controller-loss", run.on_controller_loss,
                     "wait or stop: what a killed controller or node agent means to the run (cluster.on_controller_loss)")
      ->check(CLI::IsMember({"wait", "stop"}));
}

void AddGenerateOptions(CLI::App& command, GenerateOptions& generate) {
  command.add_option("--model", generate.model, "the model's folder: config.json, safetensors, tokenizer.json")->required();
  command.add_option("--prompt", generate.prompts, "the text to go on from; may be given several times")
      ->required()->allow_extra_args(false);
  command.add_option("--tokenizer", generate.tokenizer, "the tokenizer's folder, where it is not the model's");
  command.add_option("--system", generate.system, "a system message before the prompt");
  auto* raw = command.add_flag("--raw", generate.raw, "the prompt as it stands, without a chat template");
  command.add_flag("--chat", generate.chat, "insist on the chat template")->excludes(raw);
  command.add_option("--max-new-tokens", generate.max_new_tokens, "at most so many tokens")
      ->check(CLI::Range(1, 1 << 24))->capture_default_str();
  command.add_option("--temperature", generate.temperature, "0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0))->capture_default_str();
  command.add_option("--top-k", generate.top_k, "draw from the k most likely; 0: from all")
      ->check(CLI::Range(0, 1 << 30))->capture_default_str();
  command.add_option("--top-p", generate.top_p, "draw from the most likely that together have this probability")
      ->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command.add_option("--min-p", generate.min_p, "leave out what is less likely than this part of the likeliest")
      ->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command.add_option("--seed", generate.seed, "same seed, same text")->capture_default_str();
  command.add_option("--stop", generate.stop, "end where this text comes up; may be given several times")->allow_extra_args(false);
  command.add_flag("--stream,!--no-stream", generate.stream, "print text as it comes (the default)");
  command.add_option("--device", generate.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))->capture_default_str();
  command.add_option("--threads", generate.threads, "CPU threads; 0: choose")->check(CLI::Range(0, 4096))->capture_default_str();
}

int Main(int argc, char** argv) {
  RunOptions run, eval;
  GenerateOptions generate;
  std::string status_dir, shell;
  bool status_json = false;
  CLI::App app("Manta trains language models with reinforcement learning.", "manta");
  app.set_version_flag("--version", absl::StrCat("manta ", kVersion, " (LibTorch ", kTorchVersion, ", protocol v1)"));
  app.require_subcommand(1);
  app.footer(kFooter);

  CLI::App* run_command = app.add_subcommand("run", "Run the training that a configuration describes");
  AddRunOptions(*run_command, run);
  run_command->footer(kRunFooter);
  CLI::App* eval_command = app.add_subcommand("eval", "Measure a model on a dataset: pass@k");
  AddRunOptions(*eval_command, eval);
  eval_command->footer("\nExample:\n  manta eval configs/quickstart_eval.yaml generation.model_name=DIR eval.num_tests_per_prompt=4");
  CLI::App* generate_command = app.add_subcommand("generate", "Let a model write");
  AddGenerateOptions(*generate_command, generate);
  generate_command->footer(kGenerateFooter);
  CLI::App* status_command = app.add_subcommand("status", "Show what a run or cluster does now: its step, nodes and processes");
  status_command->add_option("dir", status_dir, "a run's or cluster's folder, or the log_dir whose latest run is meant (logs)");
  status_command->add_option("--dir", status_dir, "the same");
  status_command->add_flag("--json", status_json, "print one JSON object");
  const ClusterCommands cluster_commands = AddClusterCommands(app);
  CLI::App* completion_command = app.add_subcommand("completion", "Print a shell's completion script");
  completion_command->add_option("shell", shell, "bash, zsh or fish")->required();
  completion_command->footer("\nExample:\n  source <(manta completion bash)");

  const std::string first = argc > 1 ? argv[1] : "-";
  if (first[0] != '-' && app.get_subcommands([&](const CLI::App* command) { return command->get_name() == first; }).empty()) {
    const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
    std::string names;
    for (size_t i = 0; i < commands.size(); ++i) {
      absl::StrAppend(&names, i == 0 ? "" : i + 1 < commands.size() ? ", " : " and ", commands[i]->get_name());
    }
    std::fprintf(stderr, "manta: error: there is no command '%s'; there are %s\n", first.c_str(), names.c_str());
    return kUsageError;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
    std::fprintf(stderr, "manta: error: %s\nTry `manta --help`, or `manta COMMAND --help`.\n", error.what());
    return kUsageError;
  }
  for (RunOptions* options : {&run, &eval}) {
    if (options->on_controller_loss.empty()) continue;
    options->overrides.push_back(absl::StrCat("cluster.on_controller_loss=", options->on_controller_loss));
  }
  run.command_line = eval.command_line = CommandLine(argc, argv);
  eval.must_be_eval = true;

  // Before any thread (gRPC's) is there: signals are taken by the command's own loop.
  const bool runs = (*run_command && !run.check_only && !run.print_config) || *eval_command || *generate_command;
  if (runs) BlockSignals({SIGINT, SIGTERM, SIGHUP});
  signal(SIGPIPE, SIG_IGN);

  if (*run_command) return Run(run);
  if (*eval_command) return Run(eval);
  if (*generate_command) return PrintError(Generate(generate));
  if (*status_command) return Status(status_dir, status_json);
  for (const ClusterCommand& command : cluster_commands) {
    if (*command.app) return PrintError(command.run());
  }
  absl::StatusOr<std::string> script = CompletionScript(app, shell);
  if (!script.ok()) return PrintError(script.status());
  std::printf("%s", script->c_str());
  return 0;
}

}  // namespace
}  // namespace manta::cli

int main(int argc, char** argv) {
  const int code = manta::cli::Main(argc, argv);
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);  // gRPC's threads may still run: see channels.h
}
