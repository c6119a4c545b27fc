// A YAML value that remembers where it was written.
//
// Maps keep the order of their keys. A scalar keeps its text, so that `1e-5` and `007` mean what their reader decides
// (As... below follow YAML 1.1 with the numbers of YAML 1.2). Plain values: copy them, read them from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace manta::config {

// A file and a 1-based line in it; or an override, or a default, which have no line.
struct Mark {
  std::shared_ptr<const std::string> file;
  int line = 0;
  std::string ToString() const;  // "configs/a.yaml:12", "override grpo.seed=x", "default"
};

// What OmegaConf writes for a value that must still be given.
inline constexpr char kNoValue[] = {'?', '?', '?', 0};

enum class Kind { kNull, kScalar, kSequence, kMap };

struct Node {
  Kind kind = Kind::kNull;
  std::string scalar;             // kScalar
  bool quoted = false;            // kScalar: written in quotes, so it is text whatever it looks like
  std::vector<std::string> keys;  // kMap: keys[i] names items[i]
  std::vector<Node> items;        // kSequence, kMap
  Mark mark;

  static Node Scalar(std::string text, Mark mark, bool quoted = false);
  static Node Map(Mark mark);

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_sequence() const { return kind == Kind::kSequence; }
  bool is_map() const { return kind == Kind::kMap; }

  // kMap: the value under `key`, or null. The pointer lives until the map changes.
  const Node* Find(std::string_view key) const;
  Node* Find(std::string_view key);
  // kMap: inserts at the end, or replaces in place.
  Node& Set(std::string_view key, Node value);
  bool Erase(std::string_view key);

  // What a scalar means as a type; empty where it does not. Quoted text is neither bool nor number.
  std::optional<bool> AsBool() const;
  std::optional<int64_t> AsInt() const;
  std::optional<double> AsDouble() const;

  const char* KindName() const;   // "a map", "a list", "null", "text", "a number", "true or false"
};

// "a.b.0" as its parts.
std::vector<std::string> SplitPath(std::string_view dotted);

// The value at a dotted path ("a.b.0.c": numbers index lists), or null.
const Node* FindPath(const Node& root, std::string_view dotted);

// `over` laid upon `base`: maps merge key by key, anything else is replaced.
void MergeInto(Node& base, const Node& over);

// The node as YAML that reads back as the same node (block style, text quoted where it must be).
std::string ToYaml(const Node& node);

// The node as JSON: plain scalars become null, booleans and numbers, quoted and other ones strings.
std::string ToJson(const Node& node);

// Equal in meaning: 1e-8 is 0.00000001, and quotes do not matter for text.
bool SameValue(const Node& a, const Node& b);

}  // namespace manta::config
