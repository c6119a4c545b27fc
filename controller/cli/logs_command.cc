// `manta logs`: the workers' logs, wherever they run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "controller/cli/cluster_client.h"
#include "controller/cli/cluster_commands.h"
#include "controller/cli/output.h"

namespace manta::cli {
namespace {

constexpr absl::Duration kLongestFollow = absl::Hours(24 * 365);

struct LogsOptions {
  CommonOptions common;
  std::string role, job;
  int rank = -1, lines = 0;
  bool follow = false;
};

// Whole lines of each rank, those of several with their rank before them.
class LinePrinter {
 public:
  explicit LinePrinter(std::string role, bool prefix) : role_(std::move(role)), prefix_(prefix) {}
  void Add(uint64_t rank, const std::string& bytes) {
    std::string& text = rest_[rank];
    text += bytes;
    size_t begin = 0;
    for (size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
      Print(rank, std::string_view(text).substr(begin, end - begin));
    }
    text.erase(0, begin);
    std::fflush(stdout);
  }
  void End() {
    for (const auto& [rank, text] : rest_) {
      if (!text.empty()) Print(rank, text);
    }
  }

 private:
  void Print(uint64_t rank, std::string_view line) {
    if (prefix_) std::printf("%s-%llu | ", role_.c_str(), static_cast<unsigned long long>(rank));
    std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  }
  const std::string role_;
  const bool prefix_;
  std::map<uint64_t, std::string> rest_;
};

absl::Status Logs(const LogsOptions& options) {
  MANTA_ASSIGN_OR_RETURN(ClusterClient client, ClusterClient::Open(options.common.dir));
  v1::LogsRequest request;
  request.set_job(options.job);
  request.set_role(options.role);
  request.set_rank(std::max(0, options.rank));
  request.set_all_ranks(options.rank < 0);
  request.set_follow(options.follow);
  request.set_lines(options.lines);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + (options.follow ? kLongestFollow : 6 * kAnswerDeadline)));
  const auto reader = client.cluster().Logs(&context, request);
  LinePrinter printer(options.role, options.rank < 0);
  v1::LogChunk chunk;
  while (reader->Read(&chunk)) {
    if (options.common.json) {
      PrintJson(chunk);  // an object a chunk; `id` is the rank
    } else {
      printer.Add(chunk.id(), chunk.data());
    }
  }
  printer.End();
  return client.Explain(rpc::FromGrpc(reader->Finish()));
}

}  // namespace

void AddLogs(CLI::App& app, ClusterCommands* commands) {
  auto options = std::make_shared<LogsOptions>();
  CLI::App* command = app.add_subcommand("logs", "Print the workers' logs");
  command->add_option("role", options->role, "of which role: train, gen, reward, ...")->required();
  command->add_option("--rank", options->rank, "of one rank alone (all)")->check(CLI::Range(0, 1 << 24));
  command->add_option("--job", options->job, "of which job, where there are several");
  command->add_flag("-f,--follow", options->follow, "go on as they are written");
  command->add_option("-n,--lines", options->lines, "only the last lines (all)")->check(CLI::Range(1, 1 << 24));
  AddCommonOptions(*command, &options->common);
  command->footer("\nExamples:\n  manta logs train --rank 0 -n 50\n  manta logs gen -f");
  commands->push_back({command, [options] { return Logs(*options); }});
}

}  // namespace manta::cli
