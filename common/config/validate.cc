#include "common/config/validate.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"
#include "common/config/keys.h"
#include "common/config/yaml.h"

namespace manta::config {
namespace {

class Validator {
 public:
  // Without a tree, only plain values are looked at.
  explicit Validator(const Tree* tree) : tree_(tree) {}

  absl::Status Walk(const Node& map, const std::string& prefix) {
    for (size_t i = 0; i < map.keys.size(); ++i) {
      const std::string path = prefix.empty() ? map.keys[i] : absl::StrCat(prefix, ".", map.keys[i]);
      const Node& value = map.items[i];
      if (const Key* key = FindKey(path)) {
        if (tree_ != nullptr) {
          MANTA_RETURN_IF_ERROR(Check(*key, value, path));
        } else if (key->key_class == KeyClass::kImplemented && IsPlain(value)) {
          // Before it goes into other values by interpolation: their errors would name those.
          MANTA_RETURN_IF_ERROR(CheckType(*key, value, path));
        }
      } else if (!IsTree(path)) {
        const std::string nearest = NearestKey(path);
        return UserError(absl::StrCat(value.mark.ToString(), ": unknown key '", path, "'",
                                      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
      } else if (value.is_map()) {
        const Node* enabled = value.Find("enabled");
        if (enabled != nullptr && enabled->AsBool() == false) continue;
        MANTA_RETURN_IF_ERROR(Walk(value, path));
      } else if (value.is_sequence() && (path == "data.train" || path == "data.validation")) {
        return Wrong(value, path, "a list of datasets is not implemented yet, expected one");
      } else if (tree_ == nullptr && value.is_scalar() && value.scalar.find("${") != std::string::npos) {
        continue;
      } else if (!value.is_null()) {
        return Wrong(value, path, absl::StrCat("expected a map of keys, got ", value.KindName()));
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> Warnings() const {
    if (ignored_.empty()) return {};
    return {absl::StrCat("without effect here: ", absl::StrJoin(ignored_, ", "))};
  }

 private:
  static absl::Status Wrong(const Node& node, const std::string& path, const std::string& message) {
    return UserError(absl::StrCat(node.mark.ToString(), ": ", path, ": ", message));
  }

  absl::Status Check(const Key& key, const Node& value, const std::string& path) {
    switch (key.key_class) {
      case KeyClass::kQuiet: return absl::OkStatus();
      case KeyClass::kIgnored:
        if (!IsDefault(key, value)) ignored_.push_back(absl::StrCat(path, " (", value.mark.ToString(), ")"));
        return absl::OkStatus();
      case KeyClass::kPending:
        if (IsDefault(key, value)) return absl::OkStatus();
        if (*key.value == "null") return Wrong(value, path, "is not implemented yet");
        return Wrong(value, path, absl::StrCat(Shown(value), " is not implemented yet, expected ", *key.value));
      case KeyClass::kImplemented: return CheckType(key, value, path);
    }
    return absl::OkStatus();
  }

  static bool IsDefault(const Key& key, const Node& value) {
    absl::StatusOr<Node> usual = ParseYaml(*key.value, "default");
    return usual.ok() && (SameValue(*usual, value) || (value.is_null() && (usual->is_map() || usual->is_sequence())));
  }

  static std::string Shown(const Node& node) {
    return node.is_scalar() ? absl::StrCat("'", node.scalar.substr(0, 60), "'") : node.KindName();
  }

  absl::Status CheckType(const Key& key, const Node& value, const std::string& path) const {
    if (value.is_null()) {
      return key.nullable ? absl::OkStatus() : Wrong(value, path, absl::StrCat("must not be null, expected ", Expected(key, value)));
    }
    if (value.is_scalar() && !value.quoted && value.scalar == kNoValue) {
      return Wrong(value, path, absl::StrCat("has no value yet, expected ", Expected(key, value)));
    }
    const absl::Status wrong = Wrong(value, path, absl::StrCat("expected ", Expected(key, value), ", got ", Shown(value)));
    switch (key.type) {
      case ValueType::kAny: return absl::OkStatus();
      case ValueType::kBool: return value.AsBool() ? absl::OkStatus() : wrong;
      case ValueType::kInt: {
        const auto number = value.AsInt();
        return number && InRange(key, static_cast<double>(*number)) ? absl::OkStatus() : wrong;
      }
      case ValueType::kNumber: {
        const auto number = value.AsDouble();
        return number && InRange(key, *number) ? absl::OkStatus() : wrong;
      }
      case ValueType::kText: {
        if (!value.is_scalar()) return wrong;
        if (key.one_of.empty()) return absl::OkStatus();
        for (const std::string& name : std::vector<std::string>(absl::StrSplit(key.one_of, '|'))) {
          if (value.scalar == name) return absl::OkStatus();
        }
        return wrong;
      }
      case ValueType::kIntList: return tree_ != nullptr && tree_->GetInts(path).ok() ? absl::OkStatus() : wrong;
      case ValueType::kTextList: return tree_ != nullptr && tree_->GetTexts(path).ok() ? absl::OkStatus() : wrong;
      case ValueType::kMap: return value.is_map() ? absl::OkStatus() : wrong;
    }
    return absl::OkStatus();
  }

  static bool IsPlain(const Node& node) {
    return node.is_scalar() && node.scalar.find("${") == std::string::npos;
  }

  // NaN, infinity and what would be infinite in float32 are in no range.
  static bool InRange(const Key& key, double number) {
    return std::abs(number) <= std::numeric_limits<float>::max() && number >= key.min && number <= key.max;
  }

  static std::string Expected(const Key& key, const Node& got) {
    std::string out;
    switch (key.type) {
      case ValueType::kAny: out = "a value"; break;
      case ValueType::kBool: out = "true or false"; break;
      case ValueType::kInt: out = "an integer"; break;
      case ValueType::kNumber: out = "a number"; break;
      case ValueType::kText: out = "text"; break;
      case ValueType::kIntList: out = "a list of integers"; break;
      case ValueType::kTextList: out = "a list of texts"; break;
      case ValueType::kMap: out = "a map"; break;
    }
    if (!key.one_of.empty()) out = absl::StrCat("one of ", absl::StrJoin(std::vector<std::string>(absl::StrSplit(key.one_of, '|')), ", "));
    const bool low = key.min > -std::numeric_limits<double>::infinity();
    // A bound far away is told to those alone who went beyond it.
    const bool far = key.max >= 1000 && !(got.AsDouble().value_or(0) > key.max);
    const bool high = key.max < std::numeric_limits<double>::infinity() && !far;
    if (low) absl::StrAppend(&out, " of at least ", BoundText(key.min));
    if (high) absl::StrAppend(&out, low ? " and" : " of", " at most ", BoundText(key.max));
    if (key.nullable) out += " or null";
    return out;
  }

  const Tree* tree_;
  std::vector<std::string> ignored_;
};

}  // namespace

absl::Status ValidateNames(const Node& root) { return Validator(nullptr).Walk(root, ""); }

absl::StatusOr<std::vector<std::string>> ValidateKeys(const Tree& tree) {
  Validator validator(&tree);
  MANTA_RETURN_IF_ERROR(validator.Walk(tree.root(), ""));
  return validator.Warnings();
}

}  // namespace manta::config
