// The actor runtime against what is asked of it, and against gRPC by itself at the same work in the same run.
//
//   bench_actor [--json] [--seconds 1] [--only NAME,...]
//
// It starts its own servers, actors and (with `manta launch`) clusters, on loopback, and ends them. Rates are medians
// where both sides alternate. A benchmark prints; the limits beside the figures are for the reader.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/bench/actor/calls.h"
#include "tests/bench/actor/children.h"
#include "tests/bench/actor/placements.h"
#include "tests/bench/actor/raw.h"
#include "tests/bench/actor/report.h"
#include "tests/bench/actor/starts.h"
#include "tests/testing/launched_cluster.h"

namespace manta::bench {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";
constexpr int kLaunches = 5, kStarts = 100, kPlacementWindow = 512, kCallers = 8;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Calls(Report& report, double seconds) {
  Child raw({"--serve", "raw"}), echo({"--serve", "echo"});
  const std::string raw_address = raw.Read("listening"), address = echo.Read("listening");
  std::vector<double> raw_rates, rates, ratios;
  for (int i = 0; i < 5; ++i) {
    raw_rates.push_back(RawStreamPerSecond(raw_address, kToken, seconds / 2));
    rates.push_back(CallsPerSecond(address, kToken, seconds / 2));
    ratios.push_back(rates.back() / raw_rates.back());
  }
  report.Add({.key = "calls_sync_per_s",
              .value = Median(rates),
              .limit = 7500,
              .raw_key = "raw_stream_sync_per_s",
              .raw = Median(raw_rates),
              .raw_limit = 0.75,
              .ratio = Median(ratios)});
  report.Add({.key = "raw_unary_per_s", .value = RawUnaryPerSecond(raw_address, kToken, seconds), .raw_key = {}});
}

void Pipelined(Report& report, double seconds) {
  Child raw({"--serve", "raw"}), echo({"--serve", "echo"});
  const std::string raw_address = raw.Read("listening"), address = echo.Read("listening");
  const double rate = PipelinedCallsPerSecond({address}, kToken, 1024, seconds);
  report.Add({.key = "calls_pipelined_per_s",
              .value = rate,
              .limit = 80000,
              .raw_key = "raw_stream_pipelined_per_s",
              .raw = RawStreamPipelinedPerSecond(raw_address, kToken, seconds),
              .note = "1024 under way"});
}

// `kind` of callers to `server`s, all to all.
double AllToAll(const char* server, const char* kind, double seconds) {
  std::vector<std::unique_ptr<Child>> servers, callers;
  std::vector<std::string> args = {"--serve", kind, "--seconds", std::to_string(seconds)};
  for (int i = 0; i < kCallers; ++i) {
    servers.push_back(std::make_unique<Child>(std::vector<std::string>{"--serve", server}));
    args.push_back("--address");
    args.push_back(servers.back()->Read("listening"));
  }
  for (int i = 0; i < kCallers; ++i) callers.push_back(std::make_unique<Child>(args));
  for (const auto& caller : callers) caller->Read("ready");
  for (const auto& caller : callers) caller->Write("go");
  double total = 0;
  for (const auto& caller : callers) total += std::atof(caller->Read("rate").c_str());
  return total;
}

void EightToEight(Report& report, double seconds) {
  const double rate = AllToAll("echo", "caller", seconds);
  report.Add({.key = "calls_8_to_8_per_s",
              .value = rate,
              .limit = 80000,
              .raw_key = "raw_stream_8_to_8_per_s",
              .raw = AllToAll("raw", "raw-caller", seconds),
              .note = "8 processes, each to 8 actors"});
}

std::unique_ptr<testing::LaunchedCluster> Launch() {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  auto cluster = testing::LaunchedCluster::Launch(bin, "bench_actor", /*cpu_slots=*/1 << 16);
  if (cluster.ok()) return *std::move(cluster);
  std::fprintf(stderr, "bench_actor: %s\n", std::string(cluster.status().message()).c_str());
  std::exit(69);
}

void Launches(Report& report, double) {
  std::vector<double> seconds;
  for (int i = 0; i < kLaunches; ++i) seconds.push_back(Launch()->ready_seconds());
  report.Add({.key = "launch_ready_s",
              .value = Median(seconds),
              .limit = 0.5,
              .at_most = true,
              .raw_key = {},
              .note = "manta launch until its agent has joined"});
}

void Starts(Report& report, double) {
  const auto cluster = Launch();
  const double raw = RawServersStartedPerSecond(kToken, kStarts);
  const double cold = ActorsStartedPerSecond(*cluster, kStarts, /*prefork=*/false);
  report.Add({.key = "actors_started_per_s",
              .value = cold,
              .limit = 50,
              .raw_key = "raw_servers_started_per_s",
              .raw = raw,
              .note = "cold, each answering a call"});
  report.Add({.key = "actors_started_prefork_per_s",
              .value = ActorsStartedPerSecond(*cluster, kStarts, /*prefork=*/true),
              .limit = 100,
              .raw_key = "raw_servers_started_per_s",
              .raw = raw,
              .note = "out of a pre-forked process"});
}

void Placements(Report& report, double seconds) {
  double raw = 0;
  {
    Child server({"--serve", "raw"});
    raw = RawUnaryPipelinedPerSecond(server.Read("listening"), kToken, kPlacementWindow, seconds);
  }
  const auto cluster = Launch();
  report.Add({.key = "placements_per_s",
              .value = PlacementsPerSecond(*cluster, kPlacementWindow, seconds),
              .limit = 5000,
              .raw_key = "raw_unary_pairs_pipelined_per_s",
              .raw = raw / 2,
              .note = "made and removed, 512 under way, each acknowledged after its commit"});
}

void Arguments(Report& report, double seconds) {
  const size_t bytes = size_t{256} << 20;
  double raw = 0;
  {
    Child server({"--serve", "raw"});
    raw = RawArgumentGbPerSecond(server.Read("listening"), kToken, bytes, seconds);
  }
  Child echo({"--serve", "echo"});
  const std::string address = echo.Read("listening");
  report.Add({.key = "argument_shm_gb_per_s",
              .value = ArgumentGbPerSecond(address, kToken, bytes, true, seconds),
              .limit = 5,
              .raw_key = "raw_argument_gb_per_s",
              .raw = raw,
              .note = "256 MiB, shared memory"});
  report.Add({.key = "argument_grpc_gb_per_s",
              .value = ArgumentGbPerSecond(address, kToken, bytes, false, seconds),
              .limit = 1,
              .raw_key = "raw_argument_gb_per_s",
              .raw = raw,
              .note = "256 MiB, chunks"});
}

int ServeCaller(const std::function<double()>& rate) {
  std::printf("ready now\n");
  std::fflush(stdout);
  if (std::getchar() == EOF) return 1;
  std::printf("rate %f\n", rate());
  return 0;
}

int Main(int argc, char** argv) {
  if (IsActor()) return ServeActor(argc, argv);  // before there is any thread
  const std::pair<std::string, void (*)(Report&, double)> parts[] = {
      {"calls", Calls},     {"pipelined", Pipelined},   {"eight", EightToEight}, {"starts", Starts},
      {"launch", Launches}, {"placements", Placements}, {"arguments", Arguments}};
  bool json = false;
  double seconds = 1;
  std::vector<std::string> only, addresses;
  std::string serve;
  CLI::App app("What the actor runtime costs");
  app.add_flag("--json", json, "one object at the end");
  app.add_option("--seconds", seconds, "of each measurement")->check(CLI::Range(0.05, 60.0));
  app.add_option("--only", only, "calls, pipelined, eight, starts, launch, placements, arguments")->delimiter(',');
  app.add_option("--serve", serve, "used by the benchmark itself");
  app.add_option("--address", addresses, "used by the benchmark itself");
  CLI11_PARSE(app, argc, argv);
  if (serve == "raw") return ServeRaw(kToken);
  if (serve == "echo") return ServeEcho(kToken);
  if (serve == "caller") return ServeCaller([&] { return PipelinedCallsPerSecond(addresses, kToken, 64, seconds); });
  if (serve == "raw-caller")
    return ServeCaller([&] { return RawStreamsPipelinedPerSecond(addresses, kToken, seconds); });
  for (const std::string& name : only) {
    if (std::none_of(std::begin(parts), std::end(parts), [&](const auto& part) { return part.first == name; })) {
      std::fprintf(stderr, "bench_actor: --only %s: there is no such part\n", name.c_str());
      return 64;
    }
  }
  Report report(json);
  for (const auto& [name, measure] : parts) {
    if (only.empty() || std::find(only.begin(), only.end(), name) != only.end()) measure(report, seconds);
  }
  report.Print();
  return 0;
}

}  // namespace
}  // namespace manta::bench

int main(int argc, char** argv) {
  return manta::bench::Main(argc, argv);
}
