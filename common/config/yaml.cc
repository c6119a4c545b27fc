#include "common/config/yaml.h"

#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/parser.h"

namespace manta::config {
namespace {

constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxNodes = 50000;
// yaml-cpp ends a quoted text at the end of the file in silence. This comment, put behind the file, is then inside it.
constexpr char kEnd[] = "# end of file 5b1f";
constexpr uint64_t kMaxBytes = uint64_t{16} << 20;

// The line with the first byte that is in no well-formed UTF-8 sequence, or 0.
int BadUtf8Line(std::string_view text) {
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') ++line;
    if (byte == 0) return line;
    const size_t length = byte < 0x80 ? 1 : byte >= 0xc2 && byte < 0xe0 ? 2 : byte >= 0xe0 && byte < 0xf0 ? 3 : byte >= 0xf0 && byte < 0xf5 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return line;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return line;
    }
    const auto second = length > 2 ? static_cast<unsigned char>(text[i + 1]) : 0x80;
    if ((byte == 0xe0 && second < 0xa0) || (byte == 0xed && second > 0x9f) || (byte == 0xf0 && second < 0x90) ||
        (byte == 0xf4 && second > 0x8f)) {
      return line;
    }
    i += length;
  }
  return 0;
}

size_t CountNodes(const Node& node) {
  size_t count = 1;
  for (const Node& item : node.items) count += CountNodes(item);
  return count;
}

// Builds one Node from yaml-cpp's events. Errors leave through YAML::ParserException, which carries the line.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view name) : file_(std::make_shared<const std::string>(name)) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Node node;
    node.mark = At(mark);
    Add(std::move(node), mark, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto it = anchors_.find(anchor);
    if (it == anchors_.end()) Fail(mark, "an alias inside the value that it names");
    num_nodes_ += CountNodes(it->second);
    CheckSize(mark);
    Node copy = it->second;
    copy.mark = At(mark);
    Add(std::move(copy), mark, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (value.find(kEnd) != std::string::npos) Fail(mark, "text that begins here lacks its closing quote");
    // yaml-cpp marks text in quotes (or in a block) by the tag "!".
    Add(Node::Scalar(value, At(mark), tag == "!" || tag == "tag:yaml.org,2002:str"), mark, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Kind::kSequence, mark, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Kind::kMap, mark, anchor);
  }
  void OnMapEnd() override { Close(); }

  Node TakeRoot() { return std::move(root_); }

 private:
  struct Frame {
    Node node;
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    std::string key;
    Mark key_mark;
  };

  [[noreturn]] static void Fail(const YAML::Mark& mark, const std::string& message) {
    throw YAML::ParserException(mark, message);
  }
  Mark At(const YAML::Mark& mark) const { return {file_, mark.line + 1}; }
  void CheckSize(const YAML::Mark& mark) const {
    if (num_nodes_ > kMaxNodes) Fail(mark, absl::StrCat("more than ", kMaxNodes, " values"));
  }

  void Open(Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (stack_.size() >= kMaxDepth) Fail(mark, absl::StrCat("nested more than ", kMaxDepth, " levels deep"));
    Frame frame;
    frame.node.kind = kind;
    frame.node.mark = At(mark);
    frame.mark = mark;
    frame.anchor = anchor;
    stack_.push_back(std::move(frame));
  }

  void Close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    if (frame.node.is_map()) ApplyMergeKey(frame);
    Add(std::move(frame.node), frame.mark, frame.anchor);
  }

  // `<<: *defaults` or a list of them: keys that the map does not have itself.
  static void ApplyMergeKey(Frame& frame) {
    const Node* merge = frame.node.Find("<<");
    if (merge == nullptr) return;
    std::vector<Node> sources = merge->is_sequence() ? merge->items : std::vector<Node>{*merge};
    frame.node.Erase("<<");
    for (const Node& source : sources) {
      if (!source.is_map()) Fail(frame.mark, "the merge key << wants a map");
      for (size_t i = 0; i < source.keys.size(); ++i) {
        if (frame.node.Find(source.keys[i]) == nullptr) frame.node.Set(source.keys[i], source.items[i]);
      }
    }
  }

  void Add(Node node, const YAML::Mark& mark, YAML::anchor_t anchor) {
    ++num_nodes_;
    CheckSize(mark);
    if (stack_.empty()) {
      if (anchor != 0) anchors_[anchor] = node;
      root_ = std::move(node);
      return;
    }
    Frame& top = stack_.back();
    if (top.node.is_sequence()) {
      if (anchor != 0) anchors_[anchor] = node;
      top.node.items.push_back(std::move(node));
    } else if (!top.has_key) {
      if (node.is_map() || node.is_sequence()) Fail(mark, "a key must be a word, not a list or a map");
      std::string key = node.is_null() ? "null" : node.scalar;
      if (const Node* first = top.node.Find(key)) {
        Fail(mark, absl::StrCat("duplicate key '", key, "' (first on line ", first->mark.line, ")"));
      }
      top.has_key = true;
      top.key = std::move(key);
      top.key_mark = node.mark;
      if (anchor != 0) anchors_[anchor] = std::move(node);
    } else {
      node.mark = top.key_mark;  // a value stands where its key stands
      if (anchor != 0) anchors_[anchor] = node;
      top.node.keys.push_back(std::move(top.key));
      top.node.items.push_back(std::move(node));
      top.has_key = false;
    }
  }

  std::shared_ptr<const std::string> file_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, Node> anchors_;
  size_t num_nodes_ = 0;
  Node root_;
};

}  // namespace

absl::StatusOr<Node> ParseYaml(std::string_view text, std::string_view name_view) {
  const std::string name(name_view);
  if (const int line = BadUtf8Line(text); line > 0) {
    return UserError(absl::StrCat(name, ":", line, ": is not UTF-8 text"));
  }
  Builder builder(name);
  try {
    std::istringstream stream(absl::StrCat(std::string(text), text.empty() || text.back() == '\n' ? "" : "\n", kEnd, "\n"));
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return Node();
    Node root = builder.TakeRoot();
    if (parser.HandleNextDocument(builder)) {
      return UserError(absl::StrCat(name, ": more than one YAML document; a configuration is one"));
    }
    return root;
  } catch (const YAML::Exception& e) {
    return UserError(absl::StrCat(name, ":", e.mark.line + 1, ": ", e.msg));
  } catch (const std::exception& e) {
    return UserError(absl::StrCat(name, ": cannot be read as YAML: ", e.what()));
  }
}

absl::StatusOr<Node> ReadYaml(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return UserError(absl::StrCat(path.string(), ": is a folder, expected a YAML file"));
  }
  MANTA_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxBytes));
  return ParseYaml(text, path.string());
}

}  // namespace manta::config
