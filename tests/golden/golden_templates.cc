// golden_templates DIR [--data D] [--strict]: renders every case of DIR/*.json and compares the text.
//
// A file is a list of cases {name, messages, tools, add_generation_prompt, kwargs, bos_token, eos_token} with `text`,
// or with `error` where the template must fail. The template of FAMILY__NAME.json is
// D/chat-templates/FAMILY/NAME.jinja, or DIR/NAME.jinja beside the cases. A case may give its template as `template`,
// and a whole `context` in place of the chat's fields ("@context": the JSON of DIR/context). "Now" is 2026-01-02
// 03:04:05.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/template/chat_template.h"
#include "tests/golden/report.h"

namespace manta::golden {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using chat_template::ChatTemplate;

fs::path TemplatePath(const fs::path& cases, const fs::path& data) {
  const fs::path beside = cases.parent_path() / (cases.stem().string() + ".jinja");
  const std::string stem = cases.stem().string();
  const size_t cut = stem.find("__");
  if (fs::exists(beside) || cut == std::string::npos) return beside;
  return data / "chat-templates" / stem.substr(0, cut) / (stem.substr(cut + 2) + ".jinja");
}

// Where two texts part: "byte 12: expected "ab", found "cd"".
std::string Difference(const std::string& expected, const std::string& found) {
  const size_t at = static_cast<size_t>(
      std::mismatch(expected.begin(), expected.end(), found.begin(), found.end()).first - expected.begin());
  auto around = [&](const std::string& text) {
    return Json(text.substr(std::min(at, text.size()), 40)).dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  return "byte " + std::to_string(at) + ": expected " + around(expected) + ", found " + around(found);
}

class Runner {
 public:
  Runner(Report* report, fs::path data) : report_(report), data_(std::move(data)) {}

  void File(const fs::path& path) {
    const absl::StatusOr<std::string> text = ReadFile(path);
    const Json cases = text.ok() ? Json::parse(*text, nullptr, false) : Json();
    if (!cases.is_array()) return report_->Fail(path.stem().string(), "-", "not a list of cases");
    absl::StatusOr<ChatTemplate> shared = absl::NotFoundError("no template");
    const fs::path template_path = TemplatePath(path, data_);
    if (absl::StatusOr<std::string> source = ReadFile(template_path); source.ok()) {
      shared = ChatTemplate::Parse(*source, template_path.filename().string());
    }
    const absl::StatusOr<std::string> context = ReadFile(path.parent_path() / "context");
    context_ = context.ok() ? Json::parse(*context, nullptr, false) : Json();
    std::map<std::string, int> seen;
    for (const Json& one : cases) {
      const std::string name = one.value("name", "case");
      Case(path.stem().string() + "/" + name + "#" + std::to_string(seen[name]++), one, shared);
    }
  }

 private:
  void Case(const std::string& name, const Json& one, const absl::StatusOr<ChatTemplate>& shared) {
    const absl::StatusOr<ChatTemplate> parsed =
        one.contains("template") ? ChatTemplate::Parse(one["template"].get<std::string>(), name) : shared;
    if (absl::IsNotFound(parsed.status())) return report_->Fail(name, "-", "its template was not found");
    chat_template::RenderOptions options;
    options.now = absl::CivilSecond(2026, 1, 2, 3, 4, 5);
    absl::StatusOr<chat_template::Rendered> rendered = absl::UnknownError("not rendered");
    if (!parsed.ok()) rendered = parsed.status();
    if (parsed.ok() && one.contains("context")) {
      rendered = parsed->Render(one["context"] == "@context" ? context_ : one["context"], options);
    } else if (parsed.ok()) {
      chat_template::ModelChatTemplate model{*parsed, std::nullopt, Json::object()};
      for (const char* key : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
        if (one.contains(key)) model.special_tokens[key] = one[key];
      }
      chat_template::Chat chat;
      chat.messages = one.value("messages", Json::array());
      chat.tools = one.value("tools", Json());
      chat.documents = one.value("documents", Json());
      chat.add_generation_prompt = one.value("add_generation_prompt", false);
      chat.kwargs = one.value("kwargs", Json::object());
      rendered = model.Render(chat, options);
    }
    if (one.contains("error")) {
      if (!rendered.ok()) return report_->Compare(name, "error", 0, 0);
      return report_->Fail(
          name, "error",
          "expected an error like " + one.value("message", one["error"].get<std::string>()) + ", found text");
    }
    if (!rendered.ok()) return report_->Fail(name, "text", std::string(rendered.status().message()));
    const std::string expected = one["text"].get<std::string>();
    if (rendered->text != expected) return report_->Fail(name, "text", Difference(expected, rendered->text));
    report_->Compare(name, "text", 0, 0);
  }

  Report* report_;
  fs::path data_;
  Json context_;  // the file named context beside the cases
};

int Main(int argc, char** argv) {
  fs::path dir, data = "../shared/data";
  bool strict = false, usage = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--strict") == 0) {
      strict = true;
    } else if (std::strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
      data = argv[++i];
    } else if (argv[i][0] == '-' || !dir.empty()) {
      usage = true;
    } else {
      dir = argv[i];
    }
  }
  if (usage || dir.empty() || !fs::is_directory(dir)) {
    std::fprintf(stderr, "usage: golden_templates DIR [--data D] [--strict]\n");
    return kUsageError;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Report report(strict);
  Runner runner(&report, data);
  for (const fs::path& file : files) runner.File(file);
  return report.Finish();
}

}  // namespace
}  // namespace manta::golden

int main(int argc, char** argv) {
  return manta::golden::Main(argc, argv);
}
