#include "common/config/actor_programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status.h"

namespace manta::config {
namespace {

namespace fs = std::filesystem;

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

absl::StatusOr<std::string> Find(const Node& program, const std::string& key, const fs::path& working_dir) {
  const std::string& given = program.scalar;
  const auto wrong = [&](const std::string& message) {
    return UserError(absl::StrCat(program.mark.ToString(), ": ", key, ": ", message));
  };
  std::error_code error;
  std::vector<fs::path> places;
  if (given.find('/') == std::string::npos) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path == nullptr ? "" : path, ':'))) {
      if (!folder.empty()) places.push_back(fs::path(folder) / given);
    }
  } else if (fs::path(given).is_absolute()) {
    if (!fs::exists(given, error) || IsProgram(given)) return given;  // not here: perhaps on the nodes
    places.push_back(given);
  } else {
    places.push_back(working_dir / given);
    if (program.mark.file != nullptr && program.mark.line > 0) {
      places.push_back(fs::absolute(fs::path(*program.mark.file).parent_path() / given, error));
    }
  }
  bool there = false;
  for (const fs::path& place : places) {
    if (IsProgram(place)) return place.lexically_normal().string();
    there |= fs::exists(place, error);
  }
  if (there) return wrong(absl::StrCat("'", given, "' is not a program that may be executed"));
  return wrong(
      absl::StrCat("there is no program '", given, "'",
                   given.find('/') == std::string::npos ? " in PATH" : absl::StrCat(" in ", working_dir.string())));
}

}  // namespace

absl::Status FindActorPrograms(Node& root) {
  Node* actors = root.Find("actors");
  if (actors == nullptr || !actors->is_map()) return absl::OkStatus();
  std::error_code error;
  const fs::path here = fs::current_path(error);
  for (size_t i = 0; i < actors->keys.size(); ++i) {
    Node& group = actors->items[i];
    if (!group.is_map()) continue;
    fs::path working_dir = here;
    if (const Node* given = group.Find("working_dir"); given != nullptr && given->is_scalar()) {
      working_dir = (here / given->scalar).lexically_normal();  // an absolute one replaces `here`
    }
    const Mark mark = group.Find("working_dir") != nullptr ? group.Find("working_dir")->mark : Mark{};
    group.Set("working_dir", Node::Scalar(working_dir.string(), mark, true));
    Node* command = group.Find("command");
    if (command == nullptr || !command->is_sequence() || command->items.empty() || !command->items[0].is_scalar())
      continue;
    Node& program = command->items[0];
    if (program.scalar.empty()) continue;
    MANTA_ASSIGN_OR_RETURN(program.scalar,
                           Find(program, absl::StrCat("actors.", actors->keys[i], ".command"), working_dir));
    program.quoted = true;
  }
  return absl::OkStatus();
}

}  // namespace manta::config
