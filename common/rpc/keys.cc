#include "common/rpc/keys.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/rpc/token.h"

namespace manta::rpc {
namespace {

std::string Digest(absl::string_view text) {
  unsigned char bytes[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes);
  return std::string(reinterpret_cast<const char*>(bytes), sizeof(bytes));
}

std::string Derive(absl::string_view secret, v1::Role role) {
  const std::string what = absl::StrCat("role:", RoleName(role));
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  MANTA_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                   reinterpret_cast<const unsigned char*>(what.data()), what.size(), bytes, &length) != nullptr);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), length));
}

std::filesystem::path FileOf(const std::filesystem::path& dir, v1::Role role) {
  return dir / (role == v1::ROLE_ADMIN ? "token" : absl::StrCat("token.", RoleName(role)));
}

}  // namespace

absl::string_view RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_ADMIN:
      return "admin";
    case v1::ROLE_NODE:
      return "node";
    case v1::ROLE_WORKER:
      return "worker";
    case v1::ROLE_READER:
      return "reader";
    default:
      return "none";
  }
}

v1::Role RoleOf(absl::string_view name) {
  for (const v1::Role role : kRoles) {
    if (RoleName(role) == name) return role;
  }
  return v1::ROLE_UNSPECIFIED;
}

std::string RoleNames(RoleSet roles) {
  std::vector<absl::string_view> names;
  for (const v1::Role role : kRoles) {
    if ((roles & RoleBit(role)) != 0) names.push_back(RoleName(role));
  }
  return names.empty() ? "nobody" : absl::StrJoin(names, " or ");
}

absl::StatusOr<Keys> Keys::Parse(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
  if (words.empty()) return absl::FailedPreconditionError("there is no job token");
  Keys keys;
  if (!absl::StrContains(text, '=')) {
    keys.token_ = std::string(absl::StripAsciiWhitespace(text));
    return keys;
  }
  keys.token_ = std::string(words[0]);
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> part = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    const v1::Role role = RoleOf(part.first);
    std::string digest = part.second.size() == 2 * SHA256_DIGEST_LENGTH ? absl::HexStringToBytes(part.second) : "";
    if (role == v1::ROLE_UNSPECIFIED || absl::BytesToHexString(digest) != part.second || digest.empty()) {
      return UserError(absl::StrCat("word ", i + 1, " after the job token is no ROLE=DIGEST"));
    }
    keys.digests_.emplace_back(role, std::move(digest));
  }
  return keys;
}

RoleSet Keys::RolesOf(absl::string_view token) const {
  if (digests_.empty()) return TokensEqual(token, token_) ? kEveryRole : 0;
  const std::string digest = Digest(token);
  RoleSet roles = 0;
  for (const auto& [role, expected] : digests_) roles |= TokensEqual(digest, expected) ? RoleBit(role) : 0;
  return roles;
}

RoleTokens::RoleTokens(absl::string_view secret) {
  for (const v1::Role role : kRoles) tokens_[static_cast<size_t>(role)] = Derive(secret, role);
}

std::string RoleTokens::KeysOf(v1::Role role) const {
  std::string text = token(role);
  for (const v1::Role other : kRoles) {
    absl::StrAppend(&text, " ", RoleName(other), "=", absl::BytesToHexString(Digest(token(other))));
  }
  return text;
}

absl::StatusOr<RoleTokens> RoleTokens::InFolder(const std::filesystem::path& dir) {
  absl::StatusOr<std::string> secret = ReadTokenFile(dir / "secret");
  if (absl::IsNotFound(secret.status())) secret = CreateTokenFile(dir / "secret");
  MANTA_RETURN_IF_ERROR(secret.status());
  RoleTokens tokens(*secret);
  for (const v1::Role role : kRoles) MANTA_RETURN_IF_ERROR(WriteSecretFile(FileOf(dir, role), tokens.KeysOf(role)));
  return tokens;
}

}  // namespace manta::rpc
