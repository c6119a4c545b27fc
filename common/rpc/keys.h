// Keys: what a process shows to the servers that it calls, and whom its own servers let in, in which role.
//
// They are one line of text, so that they travel wherever a token did (a token file, NodeWelcome.worker_token):
//
//   TOKEN                                                  one secret for everyone: who shows it has every role
//   TOKEN admin=DIGEST node=DIGEST worker=DIGEST reader=DIGEST
//
// In the second form each role has a token of its own (RoleTokens), and a DIGEST is the SHA-256 of that role's token: a
// worker can tell the controller from another worker without being able to act as the controller. Values; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "manta/v1/access.pb.h"

namespace manta::rpc {

// Bit r is v1::Role r.
using RoleSet = uint32_t;
constexpr RoleSet RoleBit(v1::Role role) {
  return RoleSet{1} << static_cast<int>(role);
}
inline constexpr RoleSet kEveryRole =
    RoleBit(v1::ROLE_ADMIN) | RoleBit(v1::ROLE_NODE) | RoleBit(v1::ROLE_WORKER) | RoleBit(v1::ROLE_READER);
inline constexpr std::array<v1::Role, 4> kRoles = {v1::ROLE_ADMIN, v1::ROLE_NODE, v1::ROLE_WORKER, v1::ROLE_READER};

// "admin", "node", "worker", "reader".
absl::string_view RoleName(v1::Role role);
// ROLE_UNSPECIFIED for any other word.
v1::Role RoleOf(absl::string_view name);
// "admin or worker".
std::string RoleNames(RoleSet roles);

class Keys {
 public:
  // INVALID_ARGUMENT for a line that is neither of the two forms (the line itself is not quoted).
  [[nodiscard]] static absl::StatusOr<Keys> Parse(absl::string_view text);

  const std::string& token() const { return token_; }  // what is shown

  // Whether each role has a token of its own.
  bool by_role() const { return !digests_.empty(); }

  // The roles of who shows `token`: none for a stranger. Takes equally long for every token of the right length.
  RoleSet RolesOf(absl::string_view token) const;

 private:
  std::string token_;
  std::vector<std::pair<v1::Role, std::string>> digests_;  // raw bytes; empty: the token has every role
};

// A token a role, all made from one secret: token(role) = HMAC-SHA256(secret, "role:NAME") in hexadecimal.
class RoleTokens {
 public:
  explicit RoleTokens(absl::string_view secret);

  const std::string& token(v1::Role role) const { return tokens_[static_cast<size_t>(role)]; }
  // The line of a process in that role: its own token and everyone's digests.
  std::string KeysOf(v1::Role role) const;

  // Takes `dir`/secret, or makes it of 32 random bytes, and writes token (the admin's), token.node, token.worker and
  // token.reader beside it, all 0600.
  [[nodiscard]] static absl::StatusOr<RoleTokens> InFolder(const std::filesystem::path& dir);

 private:
  std::array<std::string, 5> tokens_;
};

}  // namespace manta::rpc
