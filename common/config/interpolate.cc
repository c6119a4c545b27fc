#include "common/config/interpolate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace manta::config {
namespace {

using Path = std::vector<std::string>;

constexpr int kMaxSteps = 200000;       // nodes visited: bounds the work of `a: ${b}${b}, b: ${c}${c}, ...`
constexpr int kMaxNesting = 50;
constexpr size_t kMaxTextBytes = size_t{1} << 20;

bool HasInterpolation(const Node& node) { return node.is_scalar() && node.scalar.find("${") != std::string::npos; }

bool IsDisabled(const Node& node) {
  const Node* enabled = node.is_map() ? node.Find("enabled") : nullptr;
  return enabled != nullptr && enabled->AsBool() == false;
}

std::string FormatNumber(double value) {
  if (std::abs(value) < 9e15 && value == std::floor(value)) return absl::StrFormat("%.1f", value);
  for (int digits = 6; digits <= 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrCat(value);
}

class Resolver {
 public:
  explicit Resolver(const Node& root) : root_(root) {}

  absl::StatusOr<Node> Resolve(const Node& node, const Path& path, bool disabled) {
    if (++steps_ > kMaxSteps) return Error(node.mark, "interpolation unfolds into too much");
    if (node.is_map() || node.is_sequence()) {
      Node out = node;
      const bool inner_disabled = disabled || IsDisabled(node);
      for (size_t i = 0; i < node.items.size(); ++i) {
        Path child = path;
        child.push_back(node.is_map() ? node.keys[i] : absl::StrCat(i));
        absl::StatusOr<Node> value = Resolve(node.items[i], child, inner_disabled);
        if (value.ok()) {
          out.items[i] = *std::move(value);
        } else if (!inner_disabled) {
          return value.status();
        }
      }
      return out;
    }
    if (!HasInterpolation(node)) return node;
    const std::string name = absl::StrJoin(path, ".");
    if (std::find(active_.begin(), active_.end(), name) != active_.end()) {
      return Error(node.mark, absl::StrCat("interpolation goes in a circle: ", absl::StrJoin(active_, " -> "), " -> ", name));
    }
    if (active_.size() >= kMaxNesting) return Error(node.mark, "interpolation is nested too deep");
    active_.push_back(name);
    absl::StatusOr<Node> value = ResolveText(node.scalar, node, path);
    active_.pop_back();
    return value;
  }

 private:
  static absl::Status Error(const Mark& mark, const std::string& message) {
    return UserError(absl::StrCat(mark.ToString(), ": ", message));
  }

  // `text` is node's scalar or a part of it (an argument of a function).
  absl::StatusOr<Node> ResolveText(const std::string& text, const Node& node, const Path& path) {
    if (++steps_ > kMaxSteps) return Error(node.mark, "interpolation unfolds into too much");
    std::string out;
    size_t at = 0;
    while (at < text.size()) {
      if (text.compare(at, 3, "\\${") == 0) {
        out += "${";
        at += 3;
        continue;
      }
      if (text.compare(at, 2, "${") != 0) {
        out.push_back(text[at++]);
        continue;
      }
      MANTA_ASSIGN_OR_RETURN(const size_t end, FindEnd(text, at, node));
      MANTA_ASSIGN_OR_RETURN(Node value, Evaluate(text.substr(at + 2, end - at - 2), node, path));
      if (at == 0 && end + 1 == text.size()) {
        value.mark = node.mark;
        return value;
      }
      if (value.is_map() || value.is_sequence()) {
        return Error(node.mark, absl::StrCat("'", text.substr(at, end + 1 - at), "' is ", value.KindName(),
                                             " and cannot stand inside text"));
      }
      out += value.is_null() ? "null" : value.scalar;
      if (out.size() > kMaxTextBytes) return Error(node.mark, "interpolation unfolds into too much");
      at = end + 1;
    }
    return Node::Scalar(std::move(out), node.mark, node.quoted);
  }

  // The position of the brace that closes the `${` at `begin`.
  static absl::StatusOr<size_t> FindEnd(const std::string& text, size_t begin, const Node& node) {
    int depth = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      if (text.compare(i, 2, "${") == 0) {
        if (++depth > kMaxNesting) return Error(node.mark, "interpolation is nested too deep");
        ++i;
      } else if (text[i] == '}' && --depth == 0) {
        return i;
      }
    }
    return Error(node.mark, absl::StrCat("'", text.substr(begin, 60), "' lacks its closing brace"));
  }

  // What stands between the braces: a path, or `function:argument,argument`.
  absl::StatusOr<Node> Evaluate(const std::string& inside, const Node& node, const Path& path) {
    const size_t brace = inside.find("${");
    const size_t colon = inside.find(':');
    if (colon != std::string::npos && (brace == std::string::npos || colon < brace)) {
      return Call(std::string(absl::StripAsciiWhitespace(inside.substr(0, colon))), inside.substr(colon + 1), node, path);
    }
    std::string target = inside;
    if (brace != std::string::npos) {
      MANTA_ASSIGN_OR_RETURN(Node text, ResolveText(inside, node, path));
      if (!text.is_scalar()) return Error(node.mark, absl::StrCat("'${", inside, "}' does not name a key"));
      target = text.scalar;
    }
    return LookUp(std::string(absl::StripAsciiWhitespace(target)), node, path);
  }

  absl::StatusOr<Node> LookUp(const std::string& target, const Node& node, const Path& path) {
    size_t dots = target.find_first_not_of('.');
    if (dots == std::string::npos) return Error(node.mark, absl::StrCat("'${", target, "}' names no key"));
    Path full;
    if (dots > 0) {
      if (dots > path.size()) {
        return Error(node.mark, absl::StrCat("'${", target, "}' goes above the root of the configuration"));
      }
      full.assign(path.begin(), path.end() - static_cast<ptrdiff_t>(dots));
    }
    for (const std::string& part : SplitPath(std::string_view(target).substr(dots))) full.push_back(part);

    const Node* here = &root_;
    Node resolved;  // holds what `here` points to after an interpolation on the way
    bool left_root = false;
    for (size_t i = 0; i < full.size(); ++i) {
      here = FindPath(*here, full[i]);
      if (here == nullptr) {
        return Error(node.mark, absl::StrCat("'${", target, "}': there is no ", absl::StrJoin(full, ".")));
      }
      if (i + 1 < full.size() && !left_root && HasInterpolation(*here)) {
        Path prefix(full.begin(), full.begin() + static_cast<ptrdiff_t>(i) + 1);
        MANTA_ASSIGN_OR_RETURN(resolved, Resolve(*here, prefix, false));
        here = &resolved;
        left_root = true;
      }
    }
    if (left_root) return Node(*here);
    return Resolve(*here, full, false);
  }

  absl::StatusOr<Node> Call(const std::string& function, const std::string& arguments, const Node& node,
                            const Path& path) {
    static const auto& known = *new std::set<std::string>{"mul", "add", "sub", "div", "max", "min"};
    if (known.count(function) == 0) {
      return Error(node.mark, absl::StrCat("unknown function '", function, "' in an interpolation; known: ",
                                           absl::StrJoin(known, ", ")));
    }
    std::vector<double> values;
    bool integers = true;
    for (const std::string& argument : SplitArguments(arguments)) {
      const std::string text(absl::StripAsciiWhitespace(argument));
      MANTA_ASSIGN_OR_RETURN(Node value, ResolveText(text, Node::Scalar(text, node.mark), path));
      std::optional<double> number = value.AsDouble();
      if (!number) {
        return Error(node.mark, absl::StrCat(function, " wants numbers, '", text, "' is ", value.KindName()));
      }
      integers = integers && value.AsInt().has_value();
      values.push_back(*number);
    }
    if (values.size() < 2) return Error(node.mark, absl::StrCat(function, " wants at least two numbers"));
    double result = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      if (function == "mul") result *= values[i];
      if (function == "add") result += values[i];
      if (function == "sub") result -= values[i];
      if (function == "max") result = std::max(result, values[i]);
      if (function == "min") result = std::min(result, values[i]);
      if (function == "div") {
        if (values[i] == 0) return Error(node.mark, "division by zero");
        result /= values[i];
      }
    }
    if (!std::isfinite(result)) return Error(node.mark, absl::StrCat("the result of ", function, " is not finite"));
    if (integers && function != "div" && std::abs(result) < 9e15) {
      return Node::Scalar(absl::StrCat(static_cast<int64_t>(result)), node.mark);
    }
    return Node::Scalar(FormatNumber(result), node.mark);
  }

  // At commas that are in no braces.
  static std::vector<std::string> SplitArguments(const std::string& text) {
    std::vector<std::string> out(1);
    int depth = 0;
    for (char c : text) {
      if (c == '{') ++depth;
      if (c == '}') --depth;
      if (c == ',' && depth == 0) {
        out.emplace_back();
      } else {
        out.back().push_back(c);
      }
    }
    return out;
  }

  const Node& root_;
  std::vector<std::string> active_;
  int steps_ = 0;
};

}  // namespace

absl::StatusOr<Node> Interpolate(const Node& root) { return Resolver(root).Resolve(root, {}, false); }

}  // namespace manta::config
