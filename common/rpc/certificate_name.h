// What a certificate says of its holder: manta://JOB/ROLE/NAME, the URI among its alternative names. A value.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/rpc/keys.h"

namespace manta::rpc {

struct CertificateName {
  std::string job;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string name;

  // None for anything else.
  static std::optional<CertificateName> Parse(absl::string_view uri);
  std::string Uri() const;
  // ROLE.JOB.manta: the same for clients that can check nothing but a host's name, as gRPC's in Python.
  std::string Dns() const;
};

// Letters, digits, '.', '-' and '_': 1 to 64 of them.
bool IsPlainName(absl::string_view name);

}  // namespace manta::rpc
