#include "common/config/tree.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace manta::config {
namespace {

std::string Shown(const Node& node) {
  if (!node.is_scalar()) return node.KindName();
  std::string text = node.scalar.substr(0, 60);
  return absl::StrCat("'", text, node.scalar.size() > 60 ? "...'" : "'");
}

}  // namespace

const Node* Tree::Find(std::string_view path) const {
  const Node* node = FindPath(root_, path);
  return node == nullptr || node->is_null() ? nullptr : node;
}

std::string Tree::Where(std::string_view path) const {
  std::string prefix(path);
  while (true) {
    if (const Node* node = FindPath(root_, prefix); node != nullptr && node->mark.file != nullptr) {
      return prefix.empty() ? file_ : node->mark.ToString();
    }
    if (prefix.empty()) return file_;
    const size_t dot = prefix.rfind('.');
    prefix.resize(dot == std::string::npos ? 0 : dot);
  }
}

bool Tree::IsWritten(std::string_view path) const {
  const Node* node = FindPath(root_, path);
  return node != nullptr && node->mark.file != nullptr;
}

absl::Status Tree::Error(std::string_view path, std::string_view message) const {
  return UserError(absl::StrCat(Where(path), ": ", std::string(path), ": ", std::string(message)));
}

namespace {

template <typename T, typename Convert>
absl::StatusOr<T> Get(const Tree& tree, std::string_view path, const char* expected, Convert convert) {
  const Node* node = tree.Find(path);
  if (node == nullptr) return tree.Error(path, absl::StrCat("is missing, expected ", expected));
  if (node->is_scalar() && !node->quoted && node->scalar == kNoValue) {
    return tree.Error(path, absl::StrCat("has no value yet, expected ", expected));
  }
  std::optional<T> value = convert(*node);
  if (!value) return tree.Error(path, absl::StrCat("expected ", expected, ", got ", Shown(*node)));
  return *std::move(value);
}

template <typename T, typename Convert>
std::optional<std::vector<T>> List(const Node& node, Convert convert) {
  if (!node.is_sequence()) return std::nullopt;
  std::vector<T> out;
  for (const Node& item : node.items) {
    std::optional<T> value = convert(item);
    if (!value) return std::nullopt;
    out.push_back(*std::move(value));
  }
  return out;
}

std::optional<std::string> AsText(const Node& node) {
  if (!node.is_scalar()) return std::nullopt;
  return node.scalar;
}

}  // namespace

absl::StatusOr<bool> Tree::GetBool(std::string_view path) const {
  return Get<bool>(*this, path, "true or false", [](const Node& n) { return n.AsBool(); });
}
absl::StatusOr<int64_t> Tree::GetInt(std::string_view path) const {
  return Get<int64_t>(*this, path, "an integer", [](const Node& n) { return n.AsInt(); });
}
absl::StatusOr<double> Tree::GetNumber(std::string_view path) const {
  return Get<double>(*this, path, "a number", [](const Node& n) { return n.AsDouble(); });
}
absl::StatusOr<std::string> Tree::GetText(std::string_view path) const {
  return Get<std::string>(*this, path, "text", AsText);
}
absl::StatusOr<std::vector<int64_t>> Tree::GetInts(std::string_view path) const {
  return Get<std::vector<int64_t>>(*this, path, "a list of integers", [](const Node& n) {
    return List<int64_t>(n, [](const Node& item) { return item.AsInt(); });
  });
}
absl::StatusOr<std::vector<double>> Tree::GetNumbers(std::string_view path) const {
  return Get<std::vector<double>>(*this, path, "a list of numbers", [](const Node& n) {
    return List<double>(n, [](const Node& item) { return item.AsDouble(); });
  });
}
absl::StatusOr<std::vector<std::string>> Tree::GetTexts(std::string_view path) const {
  return Get<std::vector<std::string>>(*this, path, "a list of texts",
                                       [](const Node& n) { return List<std::string>(n, AsText); });
}

absl::StatusOr<std::string> Tree::GetEnum(std::string_view path, std::span<const std::string_view> allowed) const {
  MANTA_ASSIGN_OR_RETURN(std::string value, GetText(path));
  std::string list;
  for (std::string_view name : allowed) {
    if (value == name) return value;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return Error(path, absl::StrCat("expected one of ", list, ", got '", value, "'"));
}

absl::StatusOr<std::optional<int64_t>> Tree::GetOptionalInt(std::string_view path) const {
  if (Find(path) == nullptr) return std::optional<int64_t>();
  MANTA_ASSIGN_OR_RETURN(int64_t value, GetInt(path));
  return std::optional<int64_t>(value);
}
absl::StatusOr<std::optional<double>> Tree::GetOptionalNumber(std::string_view path) const {
  if (Find(path) == nullptr) return std::optional<double>();
  MANTA_ASSIGN_OR_RETURN(double value, GetNumber(path));
  return std::optional<double>(value);
}
absl::StatusOr<std::optional<std::string>> Tree::GetOptionalText(std::string_view path) const {
  if (Find(path) == nullptr) return std::optional<std::string>();
  MANTA_ASSIGN_OR_RETURN(std::string value, GetText(path));
  return std::optional<std::string>(std::move(value));
}

std::string Tree::ToYaml() const { return config::ToYaml(root_); }

}  // namespace manta::config
