#include "common/config/key_docs.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/config/keys.h"

namespace manta::config {
namespace {

struct Section {
  const char* tree;
  const char* intro;
};

// In the order of the document. A key belongs to the section whose tree is the longest that it lies in.
constexpr Section kSections[] = {
    {"grpo", "The program GRPO: group-relative policy optimisation with a verifier's reward."},
    {"sft", "The program SFT: supervised fine-tuning on conversations."},
    {"eval", "The program eval: pass@k of a model on the dataset `data.train`."},
    {"loss_fn", "The clipped policy-gradient loss of GRPO."},
    {"policy", "The model that is trained, its batches and its optimiser."},
    {"policy.generation", "How the policy writes samples."},
    {"generation", "The model that `eval` measures, and how it writes."},
    {"tokenizer", "The tokenizer of an evaluation."},
    {"data",
     "The keys of `data.train` may stand in `data.validation` as well; in `data.default`, for both; and directly in "
     "`data` where there is one training set (the flat form, with `train_data_path` and `val_data_path`)."},
    {"env", "Who scores samples: a tree for each `env_name` of a dataset."},
    {"actors",
     "Groups of programs of your own, one tree a group (`*` is its name), beside an algorithm or alone: docs/actors.md."},
    {"checkpointing", ""},
    {"logger", ""},
    {"cluster", ""},
};

bool LiesIn(const std::string& path, const std::string& tree) {
  return path.rfind(tree + ".", 0) == 0;
}

std::string SectionOf(const std::string& path) {
  std::string best;
  for (const Section& section : kSections) {
    const std::string tree = section.tree;
    if (LiesIn(path, tree) && tree.size() > best.size()) best = tree;
  }
  return best.empty() ? path.substr(0, path.find('.')) : best;
}

// data.default.x, data.validation.x and data.x repeat data.train.x.
bool RepeatsTrain(const std::string& path) {
  if (LiesIn(path, "data.validation") || LiesIn(path, "data.default")) return true;
  return LiesIn(path, "data") && !LiesIn(path, "data.train") && FindKey("data.train." + path.substr(5)) != nullptr;
}

std::string Code(const std::string& text) {
  return absl::StrCat("`", text, "`");
}

const char* ClassName(KeyClass key_class) {
  switch (key_class) {
    case KeyClass::kImplemented:
      return "implemented";
    case KeyClass::kIgnored:
      return "ignored";
    case KeyClass::kQuiet:
      return "ignored, no warning";
    case KeyClass::kPending:
      return "pending";
  }
  return "";
}

std::string Defaults(const Key& key) {
  std::vector<std::string> parts;
  if (key.value) parts.push_back(Code(*key.value));
  if (key.sft_value) parts.push_back(absl::StrCat("sft: ", Code(*key.sft_value)));
  if (key.eval_value) parts.push_back(absl::StrCat("eval: ", Code(*key.eval_value)));
  return absl::StrJoin(parts, "; ");
}

std::string TypeName(ValueType type) {
  switch (type) {
    case ValueType::kAny:
      return "";
    case ValueType::kBool:
      return "bool";
    case ValueType::kInt:
      return "integer";
    case ValueType::kNumber:
      return "number";
    case ValueType::kText:
      return "text";
    case ValueType::kIntList:
      return "list of integers";
    case ValueType::kTextList:
      return "list of texts";
    case ValueType::kMap:
      return "map";
  }
  return "";
}

std::string Values(const Key& key) {
  std::string out = TypeName(key.type);
  if (!key.one_of.empty()) {
    const std::vector<std::string> names = absl::StrSplit(key.one_of, '|');
    out = absl::StrCat("`", absl::StrJoin(names, "`, `"), "`");
  }
  if (std::isfinite(key.min)) absl::StrAppend(&out, " ≥ ", BoundText(key.min));
  if (std::isfinite(key.max)) absl::StrAppend(&out, std::isfinite(key.min) ? ", ≤ " : " ≤ ", BoundText(key.max));
  if (key.nullable) absl::StrAppend(&out, " or null");
  return out;
}

std::string Row(const Key& key) {
  return absl::StrCat("| ", Code(key.path), " | ", Defaults(key), " | ", Values(key), " | ", ClassName(key.key_class),
                      " | ", KeyMeaning(key.path), " |\n");
}

}  // namespace

const char kKeyTablesMarker[] = "<!-- Below this line: made by config_docs. -->\n";

std::string KeyTables() {
  std::vector<std::pair<std::string, std::string>> sections;  // tree, rows
  const auto rows_of = [&sections](const std::string& tree) -> std::string& {
    for (auto& [name, rows] : sections) {
      if (name == tree) return rows;
    }
    return sections.emplace_back(tree, std::string()).second;
  };
  for (const Section& section : kSections) rows_of(section.tree);
  for (const Key& key : AllKeys()) {
    if (!RepeatsTrain(key.path)) rows_of(SectionOf(key.path)) += Row(key);
  }
  std::string out;
  for (const auto& [tree, rows] : sections) {
    std::string intro = "Not implemented yet: accepted only with these values.";
    for (const Section& section : kSections) {
      if (section.tree == tree) intro = section.intro;
    }
    absl::StrAppend(&out, "\n### `", tree, "`\n\n", intro, intro.empty() ? "" : "\n\n",
                    "| key | default | values | class | meaning |\n|---|---|---|---|---|\n", rows);
  }
  return out;
}

absl::StatusOr<std::string> WithKeyTables(std::string_view document) {
  const std::string marker = kKeyTablesMarker;
  const size_t at = document.find(marker);
  if (at == std::string_view::npos) {
    return UserError(absl::StrCat("the document lacks the line ", marker.substr(0, marker.size() - 1)));
  }
  return std::string(document.substr(0, at)) + marker + KeyTables();
}

}  // namespace manta::config
