#include "common/rpc/certificate_name.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace manta::rpc {

std::optional<CertificateName> CertificateName::Parse(absl::string_view uri) {
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, "manta://")) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(rest, '/');
  if (parts.size() != 3 || !IsPlainName(parts[0]) || !IsPlainName(parts[2])) return std::nullopt;
  CertificateName name{.job = parts[0], .role = RoleOf(parts[1]), .name = parts[2]};
  if (name.role == v1::ROLE_UNSPECIFIED) return std::nullopt;
  return name;
}

std::string CertificateName::Uri() const {
  return absl::StrCat("manta://", job, "/", RoleName(role), "/", name);
}

std::string CertificateName::Dns() const {
  return absl::StrCat(RoleName(role), ".", job, ".manta");
}

bool IsPlainName(absl::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace manta::rpc
