#include "controller/cli/completion.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/status.h"
#include "common/config/keys.h"

namespace manta::cli {
namespace {

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string Flags(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&out, out.empty() ? "" : " ", "--", name);
  }
  return out;
}

// Keys that can be overridden, each with its equals sign.
std::string ConfigKeys() {
  std::string out;
  for (const config::Key& key : config::AllKeys()) {
    if (key.key_class == config::KeyClass::kImplemented && key.path.find('*') == std::string::npos) {
      absl::StrAppend(&out, out.empty() ? "" : " ", key.path, "=");
    }
  }
  return out;
}

std::string Bash(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* command : Commands(app)) {
    absl::StrAppend(&names, names.empty() ? "" : " ", command->get_name());
    absl::StrAppend(&cases, "    ", command->get_name(), ") words=\"", Flags(*command), "\" ;;\n");
  }
  return absl::StrCat(
      "# bash completion for manta: source <(manta completion bash)\n"
      "_manta() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} words=\"\" command=\"\"\n"
      "  COMPREPLY=()\n"
      "  [ \"$COMP_CWORD\" -gt 1 ] && command=${COMP_WORDS[1]}\n"
      "  case \"$command\" in\n"
      "    \"\") words=\"", names, " --help --version\" ;;\n", cases,
      "  esac\n"
      "  if { [ \"$command\" = run ] || [ \"$command\" = eval ]; } && [ \"$COMP_CWORD\" -gt 2 ] && [[ $cur != -* ]]; then\n"
      "    words=\"", ConfigKeys(), "\"\n"
      "    compopt -o nospace 2>/dev/null\n"
      "  elif [ -n \"$command\" ] && [[ $cur != -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
      "    compopt -o filenames 2>/dev/null\n"
      "    return\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
      "}\n"
      "complete -F _manta manta\n");
}

std::string Zsh(const CLI::App& app) {
  std::string describe, cases;
  for (const CLI::App* command : Commands(app)) {
    const std::string text = absl::StrReplaceAll(command->get_description(), {{"'", ""}, {":", " -"}, {"\n", " "}});
    absl::StrAppend(&describe, "    '", command->get_name(), ":", text, "'\n");
    absl::StrAppend(&cases, "    ", command->get_name(), ") compadd -- ", Flags(*command), "; _files ;;\n");
  }
  return absl::StrCat("#compdef manta\n# zsh completion for manta: manta completion zsh > ~/.zfunc/_manta\n"
                      "_manta() {\n  local -a commands\n  commands=(\n", describe,
                      "  )\n"
                      "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
                      "  if [[ ${words[2]} == (run|eval) ]] && (( CURRENT > 3 )) && [[ $PREFIX != -* ]]; then\n"
                      "    compadd -S '' -- ", ConfigKeys(), "\n    return\n  fi\n"
                      "  case ${words[2]} in\n", cases, "  esac\n}\ncompdef _manta manta\n");
}

std::string Fish(const CLI::App& app) {
  std::string out = "# fish completion for manta: manta completion fish > ~/.config/fish/completions/manta.fish\n";
  for (const CLI::App* command : Commands(app)) {
    const std::string text = absl::StrReplaceAll(command->get_description(), {{"'", ""}, {"\n", " "}});
    absl::StrAppend(&out, "complete -c manta -n __fish_use_subcommand -f -a ", command->get_name(), " -d '", text, "'\n");
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&out, "complete -c manta -n '__fish_seen_subcommand_from ", command->get_name(), "' -l ", name, " -d '",
                        absl::StrReplaceAll(option->get_description(), {{"'", ""}, {"\n", " "}}), "'\n");
      }
    }
  }
  return absl::StrCat(out, "complete -c manta -n '__fish_seen_subcommand_from run eval' -a '", ConfigKeys(), "'\n");
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") return Bash(app);
  if (shell == "zsh") return Zsh(app);
  if (shell == "fish") return Fish(app);
  return UserError(absl::StrCat("no completion for the shell '", shell, "', expected bash, zsh or fish"));
}

}  // namespace manta::cli
