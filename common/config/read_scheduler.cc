// policy.scheduler into ScheduleConfig.
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/reader.h"

namespace manta::config {
namespace {

const std::map<std::string, std::set<std::string>>& Known() {
  static const auto& known = *new std::map<std::string, std::set<std::string>>{
      {"LinearLR", {"start_factor", "end_factor", "total_iters", "last_epoch"}},
      {"ConstantLR", {"factor", "total_iters", "last_epoch"}},
      {"CosineAnnealingLR", {"T_max", "eta_min", "last_epoch"}}};
  return known;
}

// What a trainer takes: a linear schedule cannot begin at 0, where PyTorch's would divide by it.
std::pair<double, double> Range(const std::string& argument) {
  if (argument == "start_factor") return {1e-12, 1};
  if (argument == "end_factor" || argument == "factor") return {0, 1};
  if (argument == "total_iters" || argument == "T_max") return {1, 1e12};
  if (argument == "last_epoch") return {-1, 1e12};
  return {0, 1e6};  // eta_min, a learning rate
}

void ReadEntry(Reader& r, const std::string& path, const Node& node, ScheduleConfig& schedule) {
  constexpr char kPrefix[] = "torch.optim.lr_scheduler.";
  ScheduleEntry entry;
  const Node* name = node.Find("name");
  if (name == nullptr || !name->is_scalar()) return r.Fail(path, "a schedule needs a name, such as LinearLR");
  entry.name = name->scalar;
  if (absl::StartsWith(entry.name, kPrefix)) entry.name.erase(0, sizeof(kPrefix) - 1);
  auto known = Known().find(entry.name);
  if (known == Known().end()) {
    return r.Fail(path + ".name", absl::StrCat("'", name->scalar,
                                               "' is not implemented, expected LinearLR, ConstantLR or CosineAnnealingLR"));
  }
  for (const std::string& key : node.keys) {
    if (key != "name" && key != "kwargs") {
      return r.Fail(absl::StrCat(path, ".", key), "unknown key; a schedule has name and kwargs");
    }
  }
  if (const Node* kwargs = node.Find("kwargs"); kwargs != nullptr && !kwargs->is_null()) {
    if (!kwargs->is_map()) return r.Fail(path + ".kwargs", "expected a map");
    for (size_t i = 0; i < kwargs->keys.size(); ++i) {
      const std::string at = absl::StrCat(path, ".kwargs.", kwargs->keys[i]);
      if (known->second.count(kwargs->keys[i]) == 0) {
        return r.Fail(at, absl::StrCat("unknown key; ", entry.name, " has ", absl::StrJoin(known->second, ", ")));
      }
      const std::optional<double> value = kwargs->items[i].AsDouble();
      if (!value) return r.Fail(at, absl::StrCat("expected a number, got ", kwargs->items[i].KindName()));
      if (const auto [low, high] = Range(kwargs->keys[i]); !(*value >= low && *value <= high)) {
        return r.Fail(at, absl::StrCat("expected a number from ", low, " to ", high, ", got ", kwargs->items[i].scalar));
      }
      entry.kwargs[kwargs->keys[i]] = *value;
    }
  }
  if (entry.name == "CosineAnnealingLR" && entry.kwargs.count("T_max") == 0) {
    return r.Fail(path + ".kwargs", "CosineAnnealingLR needs T_max");
  }
  schedule.entries.push_back(std::move(entry));
}

}  // namespace

void ReadScheduler(Reader& r, std::string_view path_view, ScheduleConfig& schedule) {
  const std::string path(path_view);
  const Node* node = r.tree().Find(path);
  if (node == nullptr) return;
  if (node->is_map()) return ReadEntry(r, path, *node, schedule);
  if (!node->is_sequence()) return r.Fail(path, absl::StrCat("expected a list, a map or null, got ", node->KindName()));
  bool has_milestones = false;
  for (size_t i = 0; i < node->items.size(); ++i) {
    const Node& item = node->items[i];
    const std::string at = absl::StrCat(path, ".", i);
    if (!item.is_map()) return r.Fail(at, absl::StrCat("expected {name, kwargs} or {milestones}, got ", item.KindName()));
    const Node* milestones = item.Find("milestones");
    if (milestones == nullptr) {
      if (has_milestones) return r.Fail(at, "milestones must come last");
      ReadEntry(r, at, item, schedule);
      continue;
    }
    if (has_milestones) return r.Fail(at, "milestones are given twice");
    has_milestones = true;
    absl::StatusOr<std::vector<int64_t>> values = r.tree().GetInts(at + ".milestones");
    if (!values.ok()) return r.Fail(at + ".milestones", "expected a list of integers");
    for (size_t k = 0; k < values->size(); ++k) {
      if ((*values)[k] <= (k == 0 ? 0 : (*values)[k - 1])) {
        return r.Fail(at + ".milestones", "must be above 0 and ascend");
      }
    }
    schedule.milestones = *std::move(values);
  }
  const size_t needed = schedule.entries.empty() ? 0 : schedule.entries.size() - 1;
  if (r.status().ok() && schedule.milestones.size() != needed) {
    r.Fail(path, absl::StrCat(schedule.entries.size(), " schedules need ", needed, " milestones, got ",
                              schedule.milestones.size()));
  }
}

}  // namespace manta::config
