// The tree actors into ActorGroupConfig.
#include <algorithm>
#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/config/reader.h"
#include "common/config/run_config.h"

namespace manta::config {
namespace {

// "512MiB", "2 GiB", "1048576": bytes.
std::optional<uint64_t> ParseBytes(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), digits), &number)) return std::nullopt;
  std::string_view unit = text.substr(digits);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  constexpr std::pair<std::string_view, int> kUnits[] = {{"", 0},     {"B", 0},    {"KiB", 10},
                                                         {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  for (const auto& [name, shift] : kUnits) {
    if (unit == name && number <= (uint64_t{1} << 62) >> shift) return number << shift;
  }
  return std::nullopt;
}

void ReadBytes(Reader& r, const std::string& path, uint64_t& out) {
  std::optional<std::string> text;
  r.Read(path, text);
  if (!text) return;
  if (const auto bytes = ParseBytes(*text); bytes && *bytes > 0) {
    out = *bytes;
  } else {
    r.Fail(path, absl::StrCat("expected a size as 512MiB or 2GiB, got '", *text, "'"));
  }
}

void ReadTextMap(Reader& r, const std::string& path, std::map<std::string, std::string>& out) {
  const Node* map = r.tree().Find(path);
  if (map == nullptr || !map->is_map()) return;
  for (size_t i = 0; i < map->keys.size(); ++i) {
    const Node& value = map->items[i];
    if (!value.is_scalar()) {
      return r.Fail(path, absl::StrCat(map->keys[i], ": expected text, got ", value.KindName()));
    }
    out[map->keys[i]] = value.scalar;
  }
}

bool IsRole(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void ReadGroup(Reader& r, const std::string& tree, ActorGroupConfig& group) {
  const auto p = [&tree](const char* name) { return absl::StrCat(tree, ".", name); };
  std::vector<std::string> command, args;
  r.Read(p("command"), command);
  r.Require(!command.empty() && !command[0].empty(), p("command"),
            "is missing, expected a list of the program and its arguments");
  if (!r.status().ok()) return;
  group.executable = command[0];
  group.args.assign(command.begin() + 1, command.end());
  r.Read(p("args"), args);
  group.args.insert(group.args.end(), args.begin(), args.end());
  r.Read(p("working_dir"), group.working_dir);
  ReadTextMap(r, p("env"), group.env);
  r.Read(p("env_allow"), group.env_allow);
  r.Read(p("plain"), group.plain);
  r.Read(p("ranks"), group.ranks);
  r.Read(p("cpus"), group.cpus);
  r.Read(p("gpus"), group.gpus);
  r.Read(p("gpu_slot"), group.gpu_slot);
  ReadBytes(r, p("memory"), group.memory_bytes);
  ReadTextMap(r, p("labels"), group.labels);
  r.Read(p("avoid"), group.avoid);
  r.Read(p("strategy"), group.strategy);
  r.Read(p("segment"), group.segment);
  r.Read(p("placement_timeout_s"), group.placement_timeout_s);
  r.Read(p("start_timeout_s"), group.start_timeout_s);
  r.Read(p("progress_timeout_s"), group.progress_timeout_s);
  r.Read(p("restart.policy"), group.restart.policy);
  r.Read(p("restart.max_restarts"), group.restart.max_restarts);
  r.Read(p("restart.backoff_s"), group.restart.backoff_s);
  r.Read(p("restart.backoff_max_s"), group.restart.backoff_max_s);
  r.Read(p("restart.reset_after_s"), group.restart.reset_after_s);
  r.Read(p("name"), group.name);
  r.Read(p("detached"), group.detached);
  r.Read(p("ports"), group.ports);
  r.Read(p("torchrun"), group.torchrun);
  r.Read(p("prefork"), group.prefork);
  ReadBytes(r, p("limits.file_size"), group.file_bytes);
  r.Read(p("limits.open_files"), group.open_files);
  r.Require(group.restart.max_restarts != 0, p("restart.max_restarts"),
            "0 is restart.policy: fail_job; -1 is any number");
  r.Require(group.restart.backoff_max_s >= group.restart.backoff_s, p("restart.backoff_max_s"),
            absl::StrCat("is less than restart.backoff_s, ", group.restart.backoff_s));
  r.Require(!group.plain || group.progress_timeout_s == 0, p("progress_timeout_s"),
            "a plain program reports no progress: the group would always be taken for hanging");
  r.Require(!group.plain || !group.prefork, p("prefork"), "is for actors: a plain program cannot be forked");
  r.Require(group.segment <= group.ranks, p("segment"), absl::StrCat("is more than the group's ranks, ", group.ranks));
}

}  // namespace

void ReadActors(Reader& r, RunConfig& run) {
  const Node* actors = r.tree().Find("actors");
  if (actors == nullptr || !actors->is_map()) return;
  for (const std::string& role : actors->keys) {
    const std::string tree = absl::StrCat("actors.", role);
    r.Require(IsRole(role), tree, "a group's name has letters, digits and '_' alone, 64 at most");
    if (!r.status().ok() || r.tree().Find(tree) == nullptr) continue;
    ActorGroupConfig group{.role = role};
    ReadGroup(r, tree, group);
    run.actors.push_back(std::move(group));
  }
  r.Require(run.algorithm != Algorithm::kActors || !run.actors.empty(), "actors", "names no group");
}

}  // namespace manta::config
