// Tokens a role, certificates' names, and what a policy reads from the protos.
#include "common/rpc/keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/rpc/certificate_name.h"
#include "common/rpc/method_policy.h"
#include "common/rpc/token.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "manta/v1/cluster.pb.h"
#include "manta/v1/controller.pb.h"

namespace manta::rpc {
namespace {

using ::testing::HasSubstr;

TEST(Keys, OneTokenHasEveryRole) {
  const Keys keys = Keys::Parse("a token of a job").value();
  EXPECT_EQ(keys.token(), "a token of a job");
  EXPECT_EQ(keys.RolesOf("a token of a job"), kEveryRole);
  EXPECT_EQ(keys.RolesOf("a token of a jab"), 0u);
  EXPECT_EQ(keys.RolesOf(""), 0u);
  EXPECT_FALSE(Keys::Parse("").ok());
}

TEST(Keys, ATokenARole) {
  const RoleTokens tokens("secret"), others("another secret");
  for (const v1::Role role : kRoles) {
    const Keys keys = Keys::Parse(tokens.KeysOf(role)).value();
    EXPECT_EQ(keys.token(), tokens.token(role));
    for (const v1::Role other : kRoles) {
      EXPECT_EQ(keys.RolesOf(tokens.token(other)), RoleBit(other));
      EXPECT_EQ(keys.RolesOf(others.token(other)), 0u);
      EXPECT_EQ(tokens.KeysOf(role).find(tokens.token(other)) == std::string::npos, role != other);
    }
    EXPECT_EQ(keys.RolesOf("secret"), 0u);
  }
}

TEST(Keys, WhatIsCutOffIsNoTokenForAll) {
  const std::string text = RoleTokens("secret").KeysOf(v1::ROLE_WORKER);
  for (size_t size = 0; size < text.size(); ++size) {
    const auto keys = Keys::Parse(text.substr(0, size));
    if (!keys.ok()) continue;
    // Whole digests only, or the token alone, as its file would be if it was cut there: still nobody else's.
    EXPECT_EQ(keys->RolesOf(RoleTokens("other").token(v1::ROLE_ADMIN)), 0u);
  }
  EXPECT_THAT(std::string(Keys::Parse("token admin=12").status().message()), HasSubstr("word 2"));
  EXPECT_FALSE(Keys::Parse(absl::StrCat("token king=", std::string(64, 'a'))).ok());
  EXPECT_FALSE(Keys::Parse(absl::StrCat("token admin=", std::string(64, 'z'))).ok());
}

TEST(RoleTokens, FilesArePrivateAndStay) {
  const auto dir = std::filesystem::path(::testing::TempDir()) / absl::StrCat("role_tokens.", getpid());
  std::filesystem::create_directories(dir);
  const RoleTokens tokens = RoleTokens::InFolder(dir).value();
  const RoleTokens again = RoleTokens::InFolder(dir).value();
  for (const char* name : {"secret", "token", "token.node", "token.worker", "token.reader"}) {
    struct stat st;
    ASSERT_EQ(stat((dir / name).c_str(), &st), 0) << name;
    EXPECT_EQ(st.st_mode & 0777, 0600u) << name;
  }
  for (const v1::Role role : kRoles) EXPECT_EQ(tokens.token(role), again.token(role));
  const std::string worker = ReadTokenFile(dir / "token.worker").value();
  EXPECT_EQ(worker, tokens.KeysOf(v1::ROLE_WORKER));
  std::filesystem::remove_all(dir);
}

TEST(CertificateName, IsStrict) {
  const auto name = CertificateName::Parse("manta://job-7/worker/n0").value();
  EXPECT_EQ(name.job, "job-7");
  EXPECT_EQ(name.role, v1::ROLE_WORKER);
  EXPECT_EQ(name.name, "n0");
  EXPECT_EQ(name.Uri(), "manta://job-7/worker/n0");
  for (const char* bad :
       {"", "manta://", "manta://job/worker", "manta://job/king/n0", "manta://job/worker/n0/x", "manta://job/worker/",
        "manta:///worker/n0", "http://job/worker/n0", "manta://j b/worker/n"}) {
    EXPECT_FALSE(CertificateName::Parse(bad).has_value()) << bad;
  }
}

TEST(MethodPolicy, ReadsTheProto) {
  (void)v1::ListRequest::descriptor();  // linked in, as a served service is
  (void)v1::GetStatusRequest::descriptor();
  const auto policy = MethodPolicy::ForServices({"manta.v1.ClusterService", "manta.v1.ControllerService"}).value();
  const auto* list = policy->Find("/manta.v1.ClusterService/List");
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(list->roles, RoleBit(v1::ROLE_ADMIN) | RoleBit(v1::ROLE_NODE) | RoleBit(v1::ROLE_READER));
  EXPECT_TRUE(list->idempotent);
  EXPECT_FALSE(list->audit);
  EXPECT_TRUE(policy->Find("/manta.v1.ControllerService/StopRun")->audit);
  EXPECT_EQ(policy->Find("/manta.v1.ClusterService/Nothing"), nullptr);
  EXPECT_EQ(policy->Find("/manta.v1.NodeService/Join"), nullptr);  // not served
  EXPECT_EQ(MethodPolicy::ForServices({"x.y.Unknown"}).status().message(),
            "refusing to serve x.y.Unknown: its proto is not known here");
}

TEST(MethodPolicy, BucketsAreTheCallersOwn) {
  const auto policy = MethodPolicy::ForServices({"manta.v1.ClusterService"}).value();
  const auto& method = *policy->Find("/manta.v1.ClusterService/Counters");
  ASSERT_EQ(method.max_per_second, 10u);
  absl::Time now = absl::UnixEpoch();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(policy->TakeTurn(method, "a", now));
  EXPECT_FALSE(policy->TakeTurn(method, "a", now));
  EXPECT_TRUE(policy->TakeTurn(method, "b", now));
  now += absl::Milliseconds(250);
  EXPECT_TRUE(policy->TakeTurn(method, "a", now));
  EXPECT_TRUE(policy->TakeTurn(method, "a", now));
  EXPECT_FALSE(policy->TakeTurn(method, "a", now));
  for (int i = 0; i < 30000; ++i) (void)policy->TakeTurn(method, absl::StrCat(i), now += absl::Milliseconds(1));
}

}  // namespace
}  // namespace manta::rpc
