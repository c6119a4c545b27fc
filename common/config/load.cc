// From a file to a Tree: defaults merged, overrides applied, missing keys filled in, interpolations resolved.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"
#include "common/config/actor_programs.h"
#include "common/config/interpolate.h"
#include "common/config/keys.h"
#include "common/config/override.h"
#include "common/config/tree.h"
#include "common/config/validate.h"
#include "common/config/yaml.h"

namespace manta::config {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<Node> ReadMergedInner(const fs::path& path, std::vector<fs::path>& open) {
  std::error_code error;
  const fs::path canonical = fs::weakly_canonical(path, error);
  if (std::find(open.begin(), open.end(), canonical) != open.end()) {
    std::string circle;
    for (const fs::path& p : open) absl::StrAppend(&circle, p.filename().string(), " -> ");
    return UserError(absl::StrCat(path.string(), ": defaults go in a circle: ", circle, path.filename().string()));
  }
  if (open.size() >= 32) return UserError(absl::StrCat(path.string(), ": more than 32 levels of defaults"));
  open.push_back(canonical);
  MANTA_ASSIGN_OR_RETURN(Node node, ReadYaml(path));
  if (node.is_null()) return UserError(absl::StrCat(path.string(), ": is empty, expected a configuration"));
  if (!node.is_map()) {
    return UserError(absl::StrCat(path.string(), ": expected a map of keys at the top, got ", node.KindName()));
  }
  Node merged = Node::Map(node.mark);
  if (const Node* found = node.Find("defaults"); found != nullptr && !found->is_null()) {
    const Node defaults = *found;
    const std::vector<Node> bases = defaults.is_sequence() ? defaults.items : std::vector<Node>{defaults};
    for (const Node& base : bases) {
      if (!base.is_scalar()) {
        return UserError(absl::StrCat(base.mark.ToString(), ": defaults: expected a path or a list of paths"));
      }
      if (base.scalar == "_self_") continue;
      const fs::path base_path = path.parent_path() / base.scalar;
      if (!fs::exists(base_path, error)) {
        return UserError(absl::StrCat(base.mark.ToString(), ": defaults: there is no file ", base_path.string()));
      }
      MANTA_ASSIGN_OR_RETURN(Node read, ReadMergedInner(base_path, open));
      MergeInto(merged, read);
    }
  }
  node.Erase("defaults");
  MergeInto(merged, node);
  open.pop_back();
  return merged;
}

constexpr char kTrees[] = "grpo, sft, eval";  // of the algorithms; and actors

absl::StatusOr<Algorithm> FindAlgorithm(const Node& root, const std::string& file) {
  for (const char* later : {"dpo", "rm", "ppo", "distillation"}) {
    const Node* node = root.Find(later);
    if (node != nullptr && !node->is_null()) {
      return UserError(absl::StrCat(node->mark.ToString(), ": the algorithm '", later,
                                    "' is not implemented yet; there are ", kTrees, " and actors"));
    }
  }
  std::vector<std::pair<Algorithm, const Node*>> found;
  for (Algorithm algorithm : {Algorithm::kGrpo, Algorithm::kSft, Algorithm::kEval}) {
    const Node* node = root.Find(AlgorithmName(algorithm));
    if (node != nullptr && !node->is_null()) found.emplace_back(algorithm, node);
  }
  if (found.size() == 1) return found[0].first;
  if (found.size() > 1) {
    return UserError(absl::StrCat(found[1].second->mark.ToString(), ": both '", AlgorithmName(found[0].first), "' (",
                                  found[0].second->mark.ToString(), ") and '", AlgorithmName(found[1].first),
                                  "' are there; a run has one algorithm"));
  }
  if (const Node* actors = root.Find("actors"); actors != nullptr && !actors->is_null()) return Algorithm::kActors;
  // Nothing names an algorithm: an unknown key may be a misspelt one.
  for (size_t i = 0; i < root.keys.size(); ++i) {
    if (FindKey(root.keys[i]) != nullptr || IsTree(root.keys[i])) continue;
    const std::string nearest = NearestKey(root.keys[i]);
    return UserError(absl::StrCat(root.items[i].mark.ToString(), ": unknown key '", root.keys[i], "'",
                                  nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
  }
  return UserError(absl::StrCat(file, ": no algorithm: expected one of the trees ", kTrees, " or actors"));
}

// The value at `parts` below `node`, where nothing stands there yet.
void FillIn(Node* node, std::span<const std::string> parts, const std::string& value) {
  for (size_t i = 0; i + 1 < parts.size() && node != nullptr; ++i) {
    Node* next = node->Find(parts[i]);
    if (next == nullptr) next = &node->Set(parts[i], Node::Map({}));
    const Node* enabled = next->is_map() ? next->Find("enabled") : nullptr;
    const bool disabled = enabled != nullptr && enabled->AsBool() == false;
    node = next->is_map() && !disabled ? next : nullptr;
  }
  if (node == nullptr || node->Find(parts.back()) != nullptr) return;
  absl::StatusOr<Node> parsed = ParseYaml(value, "default");
  if (!parsed.ok()) return;  // keys_test checks every default
  parsed->mark = Mark{};
  for (Node& item : parsed->items) item.mark = Mark{};
  node->Set(parts.back(), *std::move(parsed));
}

// Every implemented key that the files and overrides left out. Nothing is added below a null or a disabled tree.
void FillDefaults(Algorithm algorithm, Node& root) {
  for (const Key& key : AllKeys()) {
    const std::vector<std::string> parts = SplitPath(key.path);
    if (const std::optional<std::string> value = DefaultFor(key, algorithm)) FillIn(&root, parts, *value);
    Node* actors = parts[0] == "actors" && key.value ? root.Find("actors") : nullptr;
    if (actors == nullptr || !actors->is_map()) continue;
    for (Node& group : actors->items) {  // actors.*.KEY
      if (group.is_map()) FillIn(&group, std::span(parts).subspan(2), *key.value);
    }
  }
}

// A relative path that is not there from the working directory is looked for beside the file that says it.
void FindInputFiles(const std::string& file, Node& node, const std::string& path) {
  if (node.is_map()) {
    for (size_t i = 0; i < node.keys.size(); ++i) {
      FindInputFiles(file, node.items[i], path.empty() ? node.keys[i] : absl::StrCat(path, ".", node.keys[i]));
    }
    return;
  }
  const Key* key = node.is_scalar() && !node.scalar.empty() ? FindKey(path) : nullptr;
  if (key == nullptr || !key->input_path) return;
  std::error_code error;
  if (fs::path(node.scalar).is_absolute() || fs::exists(node.scalar, error)) return;
  const fs::path beside = fs::path(node.mark.line > 0 ? *node.mark.file : file).parent_path() / node.scalar;
  if (fs::exists(beside, error)) node.scalar = beside.lexically_normal().string();
}

absl::StatusOr<Tree> Finish(Node root, std::span<const std::string> overrides, const std::string& file) {
  for (const std::string& text : overrides) MANTA_RETURN_IF_ERROR(ApplyOverride(text, root));
  MANTA_ASSIGN_OR_RETURN(Algorithm algorithm, FindAlgorithm(root, file));
  MANTA_RETURN_IF_ERROR(ValidateNames(root));
  // Said here: the defaults refer to it, and would say it worse.
  const char* model = algorithm == Algorithm::kEval ? "generation.model_name" : "policy.model_name";
  if (algorithm != Algorithm::kActors && FindPath(root, model) == nullptr) {
    return UserError(absl::StrCat(file, ": ", model, ": is missing, expected a folder with config.json"));
  }
  FillDefaults(algorithm, root);
  MANTA_ASSIGN_OR_RETURN(Node resolved, Interpolate(root));
  FindInputFiles(file, resolved, "");
  MANTA_RETURN_IF_ERROR(FindActorPrograms(resolved));
  return Tree(std::move(resolved), algorithm, file);
}

}  // namespace

absl::StatusOr<Node> ReadMerged(const fs::path& path) {
  std::vector<fs::path> open;
  return ReadMergedInner(path, open);
}

absl::StatusOr<Tree> LoadTree(const fs::path& path, std::span<const std::string> overrides) {
  MANTA_ASSIGN_OR_RETURN(Node root, ReadMerged(path));
  return Finish(std::move(root), overrides, path.string());
}

absl::StatusOr<Tree> TreeFromText(std::string_view text, std::span<const std::string> overrides) {
  MANTA_ASSIGN_OR_RETURN(Node root, ParseYaml(text, "text"));
  if (!root.is_map()) return UserError("text: expected a map of keys at the top");
  return Finish(std::move(root), overrides, "text");
}

}  // namespace manta::config
