#include "common/checkpoint/shard_index.h"

#include "common/base/status.h"
#include "common/base/strings.h"
#include "nlohmann/json.hpp"

namespace manta::checkpoint {

absl::StatusOr<ShardIndex> ParseShardIndex(std::string_view text, std::string_view file) {
  // Duplicate keys are seen by the callback only: the tree keeps the last in silence.
  std::map<std::string, int> seen;
  std::string duplicate;
  const auto note_keys = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (event == nlohmann::json::parse_event_t::key && depth == 2) {
      const std::string key = value.get<std::string>();
      if (++seen[key] > 1) duplicate = key;
    }
    return true;
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text, note_keys);
  } catch (const nlohmann::json::exception& error) {
    return UserError(StrCat(file, ": not JSON: ", error.what()));
  }
  if (!duplicate.empty()) return UserError(StrCat(file, ": duplicate key \"", duplicate, "\""));
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return UserError(StrCat(file, ": weight_map: expected an object from tensor to file"));
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string()) {
      return UserError(StrCat(file, ": weight_map: tensor \"", tensor, "\": expected a file name"));
    }
    std::string name = shard.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos || name == "..") {
      return UserError(StrCat(file, ": weight_map: tensor \"", tensor,
                              "\": expected a file name in the same folder, got \"", name, "\""));
    }
    index.weight_map.emplace(tensor, std::move(name));
  }
  if (index.weight_map.empty()) return UserError(StrCat(file, ": weight_map: expected at least one tensor"));
  if (auto metadata = json.find("metadata"); metadata != json.end() && metadata->is_object()) {
    if (auto size = metadata->find("total_size"); size != metadata->end() && size->is_number_unsigned()) {
      index.total_size = size->get<uint64_t>();
    }
  }
  return index;
}

std::string ShardIndexText(const ShardIndex& index) {
  nlohmann::ordered_json json;
  json["metadata"]["total_size"] = index.total_size;
  json["weight_map"] = index.weight_map;
  return json.dump(2) + "\n";
}

}  // namespace manta::checkpoint
