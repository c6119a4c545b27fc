#include "controller/node/environment.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace manta::node {
namespace {

constexpr std::string_view kNames[] = {
    "PATH", "HOME",     "LANG",   "LANGUAGE", "TZ",           "USER",          "LOGNAME",     "SHELL",
    "TERM", "HOSTNAME", "TMPDIR", "DISPLAY",  "SSL_CERT_DIR", "SSL_CERT_FILE", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
};
constexpr std::string_view kPrefixes[] = {
    "LC_",     "OMP_",    "GOMP_", "KMP_",   "MKL_",  "OPENBLAS_", "NCCL_",  "CUDA_",   "CUDNN_",
    "CUBLAS_", "NVIDIA_", "UCX_",  "TORCH_", "ATEN_", "HF_",       "XDG_",   "MALLOC_", "GRPC_",
    "MANTA_",  "SLURM_",  "ASAN_", "LSAN_",  "TSAN_", "PYTORCH_",  "UBSAN_", "PYTHON",
};
constexpr std::string_view kSecretWords[] = {"TOKEN",       "TOKENS", "SECRET",     "SECRETS",
                                             "PASSWORD",    "PASSWD", "PASSPHRASE", "CREDENTIAL",
                                             "CREDENTIALS", "KEY",    "KEYS",       "APIKEY"};

bool AllowedByName(std::string_view name, const v1::StartActor& start) {
  return std::find(start.env_allow().begin(), start.env_allow().end(), name) != start.env_allow().end();
}

bool Allowed(std::string_view name, const v1::StartActor& start) {
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  for (std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return true;
  }
  for (std::string_view pattern : start.env_allow()) {
    const bool matches =
        pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
    if (matches) return true;
  }
  return false;
}

void AddRank(const v1::StartActor& start, std::map<std::string, std::string>* variables) {
  const auto set = [&](const char* name, const std::string& value) { variables->emplace(name, value); };
  if (start.world_size() > 0) {
    set("WORLD_SIZE", absl::StrCat(start.world_size()));
    set("RANK", absl::StrCat(start.rank()));
    set("LOCAL_RANK", absl::StrCat(start.local_rank()));
    set("LOCAL_WORLD_SIZE", absl::StrCat(start.local_world_size()));
    set("NODE_RANK", absl::StrCat(start.node_rank()));
    set("GROUP_RANK", absl::StrCat(start.node_rank()));
  }
  const size_t colon = start.master().rfind(':');
  if (colon != std::string::npos) {
    std::string host = start.master().substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    set("MASTER_ADDR", host);
    set("MASTER_PORT", start.master().substr(colon + 1));
  }
  if (start.ports_size() > 0) set("MANTA_PORTS", absl::StrJoin(start.ports(), ","));
}

}  // namespace

bool SoundsSecret(std::string_view name) {
  const std::vector<std::string> words = absl::StrSplit(absl::AsciiStrToUpper(std::string(name)), '_');
  for (const std::string& word : words) {
    if (std::find(std::begin(kSecretWords), std::end(kSecretWords), word) != std::end(kSecretWords)) return true;
  }
  return false;
}

WorkerEnvironment BuildEnvironment(const std::vector<std::string>& inherited, const v1::StartActor& start) {
  WorkerEnvironment result;
  result.variables.insert(start.env().begin(), start.env().end());
  AddRank(start, &result.variables);  // what the user has set stays
  std::vector<std::string> held_back;
  for (const std::string& entry : inherited) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string name = entry.substr(0, equals);
    if (!Allowed(name, start) || result.variables.count(name) > 0) continue;
    if (SoundsSecret(name) && !AllowedByName(name, start)) {
      held_back.push_back(name);
      continue;
    }
    result.variables.emplace(name, entry.substr(equals + 1));
  }
  const auto devices = result.variables.find("CUDA_VISIBLE_DEVICES");
  if (devices != result.variables.end() && !devices->second.empty()) {
    result.notes.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES=", devices->second, ": the GPUs that it was placed on"));
  } else if (devices != result.variables.end()) {
    result.notes.push_back("CUDA_VISIBLE_DEVICES is empty: it was placed on no GPU, and sees none");
  }
  if (!held_back.empty()) {
    std::sort(held_back.begin(), held_back.end());
    result.notes.push_back(absl::StrCat("not passed on (they sound like secrets; env_allow passes them by name): ",
                                        absl::StrJoin(held_back, ", ")));
  }
  return result;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

}  // namespace manta::node
