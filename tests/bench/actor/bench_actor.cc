// The actor runtime against its floor: calls of the call plane, and gRPC by itself in the same run.
//
//   bench_actor [--json] [--seconds 1] [--only NAME,...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "nlohmann/json.hpp"
#include "tests/bench/actor/calls.h"
#include "tests/bench/actor/children.h"
#include "tests/bench/actor/raw.h"

namespace manta::bench {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  bool json = false;
  double seconds = 1;
  std::vector<std::string> only;
  std::string serve, address;
};

class Report {
 public:
  explicit Report(bool json) : json_(json) {}
  void Add(const std::string& key, double value, const std::string& note = "") {
    values_[key] = value;
    if (!json_) {
      std::printf("%-32s %14.2f  %s\n", key.c_str(), value, note.c_str());
      std::fflush(stdout);
    }
  }
  void Print() {
    if (json_) std::printf("%s\n", values_.dump(2).c_str());
  }

 private:
  const bool json_;
  nlohmann::ordered_json values_;
};

void Calls(Report& report, double seconds) {
  Child raw({"--serve", "raw"}), echo({"--serve", "echo"});
  const std::string raw_address = raw.Read("listening"), address = echo.Read("listening");
  std::vector<double> raw_rates, rates, ratios;
  for (int i = 0; i < 5; ++i) {
    raw_rates.push_back(RawStreamPerSecond(raw_address, kToken, seconds / 2));
    rates.push_back(CallsPerSecond(address, kToken, seconds / 2));
    ratios.push_back(rates.back() / raw_rates.back());
  }
  report.Add("calls_sync_per_s", Median(rates), "one at a time");
  report.Add("raw_stream_sync_per_s", Median(raw_rates), "gRPC's synchronous stream");
  report.Add("calls_sync_over_raw", Median(ratios), "at least 0.75");
  report.Add("raw_unary_per_s", RawUnaryPerSecond(raw_address, kToken, seconds));
}

void Pipelined(Report& report, double seconds) {
  Child raw({"--serve", "raw"}), echo({"--serve", "echo"});
  const std::string raw_address = raw.Read("listening"), address = echo.Read("listening");
  report.Add("calls_pipelined_per_s", PipelinedCallsPerSecond({address}, kToken, 1024, seconds), "1024 under way");
  report.Add("raw_stream_pipelined_per_s", RawStreamPipelinedPerSecond(raw_address, kToken, seconds));
}

void EightToEight(Report& report, double seconds) {
  std::vector<std::unique_ptr<Child>> actors, callers;
  std::vector<std::string> args = {"--serve", "caller", "--seconds", std::to_string(seconds)};
  for (int i = 0; i < 8; ++i) {
    actors.push_back(std::make_unique<Child>(std::vector<std::string>{"--serve", "echo"}));
    args.push_back("--address");
    args.push_back(actors.back()->Read("listening"));
  }
  for (int i = 0; i < 8; ++i) callers.push_back(std::make_unique<Child>(args));
  for (const auto& caller : callers) caller->Read("ready");
  for (const auto& caller : callers) caller->Write("go");
  double total = 0;
  for (const auto& caller : callers) total += std::atof(caller->Read("rate").c_str());
  report.Add("calls_8_to_8_per_s", total, "8 processes, each to 8 actors");
}

void Arguments(Report& report, double seconds) {
  Child echo({"--serve", "echo"});
  const std::string address = echo.Read("listening");
  const size_t bytes = size_t{256} << 20;
  report.Add("argument_shm_gb_per_s", ArgumentGbPerSecond(address, kToken, bytes, true, seconds),
             "256 MiB, shared memory");
  report.Add("argument_grpc_gb_per_s", ArgumentGbPerSecond(address, kToken, bytes, false, seconds), "256 MiB, chunks");
}

int Main(int argc, char** argv) {
  Options options;
  std::vector<std::string> addresses;
  CLI::App app("what the actor runtime costs");
  app.add_flag("--json", options.json);
  app.add_option("--seconds", options.seconds, "of each measurement");
  app.add_option("--only", options.only, "calls, pipelined, eight, arguments")->delimiter(',');
  app.add_option("--serve", options.serve, "used by the benchmark itself");
  app.add_option("--address", addresses);
  CLI11_PARSE(app, argc, argv);
  if (options.serve == "raw") return ServeRaw(kToken);
  if (options.serve == "echo") return ServeEcho(kToken);
  if (options.serve == "caller") {
    std::printf("ready now\n");
    std::fflush(stdout);
    if (std::getchar() == EOF) return 1;
    std::printf("rate %f\n", PipelinedCallsPerSecond(addresses, kToken, 64, options.seconds));
    return 0;
  }
  Report report(options.json);
  const auto wanted = [&](const char* name) {
    return options.only.empty() || std::find(options.only.begin(), options.only.end(), name) != options.only.end();
  };
  if (wanted("calls")) Calls(report, options.seconds);
  if (wanted("pipelined")) Pipelined(report, options.seconds);
  if (wanted("eight")) EightToEight(report, options.seconds);
  if (wanted("arguments")) Arguments(report, options.seconds);
  report.Print();
  return 0;
}

}  // namespace
}  // namespace manta::bench

int main(int argc, char** argv) {
  return manta::bench::Main(argc, argv);
}
