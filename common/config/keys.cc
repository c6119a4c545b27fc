#include "common/config/keys.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"

namespace manta::config {
namespace {

Key Make(std::string path, KeyClass key_class, ValueType type, Default value) {
  Key key;
  key.path = std::move(path);
  key.key_class = key_class;
  key.type = type;
  key.value = std::move(value);
  return key;
}

bool Matches(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == "**") return path.size() > i;
    if (i >= path.size() || (pattern[i] != "*" && pattern[i] != path[i])) return false;
  }
  return pattern.size() == path.size();
}

// Edits that turn `a` into `b` (Levenshtein, with swaps of neighbours as one edit).
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

struct Table {
  Keys keys;
  std::map<std::string, const Key*, std::less<>> exact;
  std::vector<std::pair<std::vector<std::string>, const Key*>> patterns;
  std::set<std::string, std::less<>> trees;  // every proper prefix of a key without stars
  std::vector<std::vector<std::string>> tree_patterns;

  Table() {
    AddAlgorithmKeys(keys);
    AddPolicyKeys(keys);
    AddGenerationKeys(keys);
    AddDataKeys(keys);
    AddRunKeys(keys);
    AddActorKeys(keys);
    AddLaterKeys(keys);
    for (const Key& key : keys) {
      const std::vector<std::string> parts = SplitPath(key.path);
      const bool starred = key.path.find('*') != std::string::npos;
      if (starred) {
        patterns.emplace_back(parts, &key);
      } else {
        exact.emplace(key.path, &key);
      }
      std::string prefix;
      std::vector<std::string> prefix_parts;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        prefix += (i > 0 ? "." : "") + parts[i];
        prefix_parts.push_back(parts[i]);
        if (prefix.find('*') == std::string::npos) {
          trees.insert(prefix);
        } else {
          tree_patterns.push_back(prefix_parts);
        }
      }
    }
  }
};

const Table& TheTable() {
  static const Table& table = *new Table();
  return table;
}

bool StartsWith(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

}  // namespace

Key Bool(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kBool, std::move(value)); }
Key Int(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kInt, std::move(value)); }
Key Number(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kNumber, std::move(value)); }
Key Text(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kText, std::move(value)); }
Key IntList(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kIntList, std::move(value)); }
Key TextList(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kTextList, std::move(value)); }
Key AnyMap(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kMap, std::move(value)); }
Key Any(std::string path, Default value) { return Make(std::move(path), KeyClass::kImplemented, ValueType::kAny, std::move(value)); }
Key Ignored(std::string path, std::string value) { return Make(std::move(path), KeyClass::kIgnored, ValueType::kAny, std::move(value)); }
Key Quiet(std::string path) { return Make(std::move(path), KeyClass::kQuiet, ValueType::kAny, std::nullopt); }
Key Pending(std::string path, std::string value) { return Make(std::move(path), KeyClass::kPending, ValueType::kAny, std::move(value)); }
Key NotYet(std::string path) { return Make(std::move(path), KeyClass::kPending, ValueType::kAny, "null"); }

const Keys& AllKeys() { return TheTable().keys; }

const Key* FindKey(std::string_view path) {
  const Table& table = TheTable();
  if (auto it = table.exact.find(path); it != table.exact.end()) return it->second;
  const std::vector<std::string> parts = SplitPath(path);
  for (const auto& [pattern, key] : table.patterns) {
    if (Matches(pattern, parts)) return key;
  }
  return nullptr;
}

bool IsTree(std::string_view path) {
  const Table& table = TheTable();
  if (table.trees.find(path) != table.trees.end()) return true;
  const std::vector<std::string> parts = SplitPath(path);
  for (const auto& pattern : table.tree_patterns) {
    if (Matches(pattern, parts)) return true;
  }
  return false;
}

std::string BoundText(double bound) { return absl::StrFormat("%.10g", bound); }

std::optional<std::string> DefaultFor(const Key& key, Algorithm algorithm) {
  if (key.key_class != KeyClass::kImplemented || key.path.find('*') != std::string::npos) return std::nullopt;
  const std::string_view path = key.path;
  bool applies = false;
  switch (algorithm) {
    case Algorithm::kGrpo:
      applies = !StartsWith(path, "sft.") && !StartsWith(path, "eval.") && !StartsWith(path, "generation.") &&
                !StartsWith(path, "tokenizer.");
      break;
    case Algorithm::kSft:
      applies = !StartsWith(path, "grpo.") && !StartsWith(path, "eval.") && !StartsWith(path, "generation.") &&
                !StartsWith(path, "tokenizer.") && !StartsWith(path, "loss_fn.") && !StartsWith(path, "policy.generation.");
      break;
    case Algorithm::kEval:
      applies = StartsWith(path, "eval.") || StartsWith(path, "generation.") || StartsWith(path, "tokenizer.") ||
                StartsWith(path, "data.") || StartsWith(path, "logger.") || StartsWith(path, "cluster.");
      break;
    case Algorithm::kActors:
      applies = path == "logger.log_dir";
      break;
  }
  if (!applies) return std::nullopt;
  if (algorithm == Algorithm::kSft && key.sft_value) return key.sft_value;
  if (algorithm == Algorithm::kEval && key.eval_value) return key.eval_value;
  return key.value;
}

std::string NearestKey(std::string_view path) {
  // A name that is spelt much alike; among equals the one whose tree shares most with the unknown key's.
  const std::vector<std::string> parts = SplitPath(path);
  const std::string& name = parts.back();
  const size_t limit = std::max<size_t>(1, name.size() / 3);
  std::string best;
  size_t best_score = std::numeric_limits<size_t>::max();
  for (const Key& key : AllKeys()) {
    const std::vector<std::string> known = SplitPath(key.path);
    size_t shared = 0;  // leading parts in common
    std::string prefix;
    for (size_t depth = 1; depth <= known.size(); ++depth) {
      const std::string& last = known[depth - 1];
      const bool wild = last == "*" || last == "**";
      const std::string part = wild && depth - 1 < parts.size() ? parts[depth - 1] : last;
      prefix += (depth > 1 ? "." : "") + part;
      if (!wild) {
        const bool beside = shared == depth - 1 && depth == parts.size();
        const size_t distance = Distance(name, last);
        const size_t score = distance * 100 + (beside ? 0 : 50 - std::min<size_t>(40, 10 * shared)) + (depth > parts.size() ? 1 : 0);
        if (distance <= limit && (last.size() > 3 || shared + 1 >= parts.size()) && score < best_score) {
          best_score = score;
          best = prefix;
        }
      }
      if (shared == depth - 1 && depth - 1 < parts.size() && part == parts[depth - 1]) ++shared;
    }
  }
  return best;
}

}  // namespace manta::config
