#include "controller/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/base/shuffle.h"
#include "common/base/status.h"

namespace manta::controller {
namespace {

using Json = nlohmann::ordered_json;

// Names the line and field of what is wrong.
class RowReader {
 public:
  RowReader(const std::string& path, int64_t line, const Json& row) : where_(absl::StrCat(path, ":", line)), row_(row) {}

  absl::Status Error(std::string_view message) const { return UserError(absl::StrCat(where_, ": ", std::string(message))); }

  absl::StatusOr<const Json*> Field(const std::string& key) const {
    const auto it = row_.find(key);
    if (it != row_.end()) return &*it;
    std::vector<std::string> keys;
    for (const auto& [name, value] : row_.items()) keys.push_back(absl::StrCat("\"", name, "\""));
    if (keys.size() > 8) keys.resize(8);
    return Error(absl::StrCat("no field \"", key, "\"; the row has ", keys.empty() ? "none" : absl::StrJoin(keys, ", ")));
  }

  // A string; numbers are taken as written.
  absl::StatusOr<std::string> Text(const std::string& key) const {
    MANTA_ASSIGN_OR_RETURN(const Json* value, Field(key));
    if (value->is_string()) return value->get<std::string>();
    if (value->is_number()) return value->dump();
    return Error(absl::StrCat("field \"", key, "\" is ", value->type_name(), ", expected a string"));
  }

  absl::StatusOr<Json> Messages(const std::string& key) const {
    MANTA_ASSIGN_OR_RETURN(const Json* list, Field(key));
    if (!list->is_array() || list->empty()) {
      return Error(absl::StrCat("field \"", key, "\" is ", list->is_array() ? "empty" : list->type_name(),
                                ", expected a list of messages"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      const Json& message = (*list)[i];
      const std::string name = absl::StrCat("\"", key, "\"[", i, "]");
      if (!message.is_object()) return Error(absl::StrCat(name, " is ", message.type_name(), ", expected an object"));
      if (!message.contains("role") || !message["role"].is_string()) {
        return Error(absl::StrCat(name, " has no string \"role\""));
      }
      const bool has_content = message.contains("content") && (message["content"].is_string() || message["content"].is_array());
      if (!has_content && !message.contains("tool_calls")) {
        return Error(absl::StrCat(name, " has neither a \"content\" that is a string nor \"tool_calls\""));
      }
    }
    return *list;
  }

 private:
  std::string where_;
  const Json& row_;
};

Json Message(std::string_view role, std::string content) { return Json{{"role", role}, {"content", std::move(content)}}; }

absl::StatusOr<DatasetRow> ReadConversation(const RowReader& reader, const Json& json,
                                            const config::DatasetConfig& config) {
  DatasetRow row;
  MANTA_ASSIGN_OR_RETURN(row.messages, reader.Messages(config.chat_key));
  std::optional<std::string> system = config.system_prompt;
  if (config.system_key && json.contains(*config.system_key)) {
    MANTA_ASSIGN_OR_RETURN(system, reader.Text(*config.system_key));
  }
  if (system && row.messages[0]["role"] != "system") row.messages.insert(row.messages.begin(), Message("system", *system));
  if (json.contains("tools") && json["tools"].is_array()) row.tools = json["tools"];
  return row;
}

absl::StatusOr<DatasetRow> ReadProblem(const RowReader& reader, const config::DatasetConfig& config) {
  const bool gsm8k = config.dataset_name == "gsm8k";
  DatasetRow row;
  MANTA_ASSIGN_OR_RETURN(row.problem, reader.Text(gsm8k ? "question" : config.input_key));
  MANTA_ASSIGN_OR_RETURN(row.ground_truth, reader.Text(gsm8k ? "answer" : config.output_key));
  if (gsm8k) {
    const size_t mark = row.ground_truth.rfind("####");
    if (mark == std::string::npos) return reader.Error("field \"answer\" has no \"#### \" before a final answer");
    row.ground_truth = std::string(absl::StripAsciiWhitespace(absl::string_view(row.ground_truth).substr(mark + 4)));
  }
  row.messages = Json::array();
  if (config.system_prompt) row.messages.push_back(Message("system", *config.system_prompt));
  row.messages.push_back(Message(
      "user", config.prompt_template ? absl::StrReplaceAll(*config.prompt_template, {{"{}", row.problem}}) : row.problem));
  return row;
}

}  // namespace

absl::StatusOr<Dataset> ParseDataset(std::string_view text, const std::string& path,
                                     const config::DatasetConfig& config) {
  Dataset dataset{.path = path, .env_name = config.env_name};
  int64_t line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = Json::parse(content, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return UserError(absl::StrCat(path, ":", line, ": not JSON; expected one object a line"));
    if (!json.is_object()) {
      return UserError(absl::StrCat(path, ":", line, ": is ", json.type_name(), ", expected an object"));
    }
    const RowReader reader(path, line, json);
    MANTA_ASSIGN_OR_RETURN(DatasetRow row, config.dataset_name == "openai_format"
                                               ? ReadConversation(reader, json, config)
                                               : ReadProblem(reader, config));
    row.line = line;
    row.metadata_json = std::string(content);
    dataset.rows.push_back(std::move(row));
  }
  if (dataset.rows.empty()) return UserError(absl::StrCat(path, ": has no rows"));
  const size_t once = dataset.rows.size();
  for (int64_t copy = 1; copy < config.repeat; ++copy) {
    for (size_t i = 0; i < once; ++i) dataset.rows.push_back(dataset.rows[i]);
  }
  return dataset;
}

absl::StatusOr<Dataset> LoadDataset(const config::DatasetConfig& config) {
  absl::StatusOr<std::string> text = ReadFile(config.data_path);
  if (!text.ok()) return Annotate(text.status(), config.where);
  return ParseDataset(*text, config.data_path, config);
}

absl::StatusOr<std::pair<Dataset, Dataset>> LoadTrainAndValidation(const config::DataConfig& config, uint64_t seed) {
  MANTA_ASSIGN_OR_RETURN(Dataset train, LoadDataset(config.train));
  Dataset validation{.path = train.path, .env_name = train.env_name};
  if (config.validation) {
    MANTA_ASSIGN_OR_RETURN(validation, LoadDataset(*config.validation));
  } else if (config.train.split_validation_size > 0) {
    const auto held_out = static_cast<size_t>(
        std::llround(config.train.split_validation_size * static_cast<double>(train.rows.size())));
    std::vector<size_t> order(train.rows.size());
    std::iota(order.begin(), order.end(), size_t{0});
    RandomStream random(config.train.split_seed.value_or(seed), /*stream=*/0x7a11da7e);
    Shuffle(order, random);
    std::vector<bool> is_held_out(order.size(), false);
    for (size_t i = 0; i < held_out && i + 1 < order.size(); ++i) is_held_out[order[i]] = true;
    std::vector<DatasetRow> kept;
    for (size_t i = 0; i < order.size(); ++i) {
      (is_held_out[i] ? validation.rows : kept).push_back(std::move(train.rows[i]));
    }
    train.rows = std::move(kept);
  }
  return std::make_pair(std::move(train), std::move(validation));
}

std::pair<int64_t, const char*> RowsOfAStep(const config::RunConfig& run) {
  if (run.algorithm == config::Algorithm::kSft) {
    return {run.policy.train_global_batch_size, "policy.train_global_batch_size"};
  }
  return {run.grpo.prompts_per_batch(), "grpo.num_prompts_per_step"};
}

absl::Status RequireRows(const Dataset& dataset, int64_t needed, const char* key) {
  if (static_cast<int64_t>(dataset.rows.size()) >= needed) return absl::OkStatus();
  return UserError(
      absl::StrCat(key, ": ", dataset.path, " has ", dataset.rows.size(), " rows for training, fewer than the ", needed, " of a step"));
}

}  // namespace manta::controller
