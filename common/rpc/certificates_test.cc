// The files that `manta init-certs` writes: who signed what, who may read it, and the CA's rotation.
#include "common/rpc/certificates.h"

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/rpc/tls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace manta::rpc {
namespace {

using ::testing::HasSubstr;

class CertificatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(::testing::TempDir()) / absl::StrCat("certificates.", getpid());
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  absl::StatusOr<std::string> Fit(const std::string& name) {
    return CheckFilesFit(dir_ / "ca.pem", dir_ / (name + ".pem"), dir_ / (name + ".key"));
  }
  std::filesystem::path dir_;
};

TEST_F(CertificatesTest, EachRoleAndNodeHasOne) {
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job", .nodes = {"n0", "n1.example"}}).ok());
  EXPECT_EQ(Fit("admin").value(), "manta://job/admin/admin");
  EXPECT_EQ(Fit("worker").value(), "manta://job/worker/worker");
  EXPECT_EQ(Fit("reader").value(), "manta://job/reader/reader");
  EXPECT_EQ(Fit("n1.example").value(), "manta://job/node/n1.example");
  for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
    struct stat st;
    ASSERT_EQ(stat(entry.path().c_str(), &st), 0);
    if (entry.path().extension() != ".key") continue;
    EXPECT_EQ(st.st_mode & 0777, 0600u) << entry.path();
  }
  EXPECT_TRUE(TlsFilesIn(dir_, "n0").ok());
  EXPECT_EQ(TlsFilesIn(dir_, "n7").status().code(), absl::StatusCode::kNotFound);
  chmod((dir_ / "n0.key").c_str(), 0644);
  EXPECT_THAT(std::string(TlsFilesIn(dir_, "n0").status().message()), HasSubstr("others can read the private key"));
}

TEST_F(CertificatesTest, BadNamesAreRefused) {
  EXPECT_FALSE(InitCertificates(dir_, {.job = ""}).ok());
  EXPECT_FALSE(InitCertificates(dir_, {.job = "a/b"}).ok());
  EXPECT_FALSE(InitCertificates(dir_, {.job = "job", .nodes = {"admin"}}).ok());
  EXPECT_FALSE(InitCertificates(dir_, {.job = "job", .nodes = {"../x"}}).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(CertificatesTest, FilesThatDoNotBelongTogetherAreNamed) {
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}).ok());
  const auto other = dir_ / "other";
  ASSERT_TRUE(InitCertificates(other, {.job = "job"}).ok());
  EXPECT_THAT(std::string(CheckFilesFit(other / "ca.pem", dir_ / "node.pem", dir_ / "node.key").status().message()),
              HasSubstr("was not signed by"));
  EXPECT_THAT(std::string(CheckFilesFit(dir_ / "ca.pem", dir_ / "node.pem", dir_ / "admin.key").status().message()),
              HasSubstr("is not the key of"));
  EXPECT_THAT(std::string(CheckFilesFit(dir_ / "node.key", dir_ / "node.pem", dir_ / "node.key").status().message()),
              HasSubstr("holds no certificate"));
  EXPECT_FALSE(TlsServer({dir_ / "ca.pem", dir_ / "ca.pem", dir_ / "ca.key"}).ok());  // a CA names no holder
}

TEST_F(CertificatesTest, AProcessDoesNotBeginWithOneThatIsValidNoMore) {
  setenv("MANTA_TLS_DIR", dir_.c_str(), 1);
  EXPECT_EQ(UseTlsFromEnvironment("n0", v1::ROLE_NODE).code(), absl::StatusCode::kNotFound);
  const absl::Time from = absl::Now() - absl::Hours(2);
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job", .valid = absl::Hours(1), .from = from}).ok());
  EXPECT_EQ(ValidUntil(dir_ / "node.pem").value(), absl::FromTimeT(absl::ToTimeT(from + absl::Hours(1))));
  EXPECT_THAT(std::string(UseTlsFromEnvironment("n0", v1::ROLE_NODE).message()), HasSubstr("node.pem was valid until "));
  EXPECT_FALSE(ProcessTls().has_value());
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}).ok());
  EXPECT_TRUE(UseTlsFromEnvironment("n0", v1::ROLE_NODE).ok());
  EXPECT_EQ(ProcessTls()->certificate, dir_ / "node.pem");
  SetProcessTls(std::nullopt);
  unsetenv("MANTA_TLS_DIR");
}

TEST_F(CertificatesTest, TheCaIsRotatedInThreeSteps) {
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}).ok());
  const std::string first = ReadFile(dir_ / "ca.pem").value(), leaf = ReadFile(dir_ / "node.pem").value();
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}).ok());
  EXPECT_EQ(ReadFile(dir_ / "ca.pem").value(), first);  // renewed by the CA that is there
  EXPECT_NE(ReadFile(dir_ / "node.pem").value(), leaf);

  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}, CaStep::kAdd).ok());
  const std::string both = ReadFile(dir_ / "ca.pem").value();
  EXPECT_THAT(both, HasSubstr(first));
  EXPECT_GT(both.size(), first.size());
  EXPECT_TRUE(Fit("node").ok());  // still the old CA's
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}).ok());
  EXPECT_TRUE(Fit("node").ok());
  ASSERT_TRUE(InitCertificates(dir_, {.job = "job"}, CaStep::kDropOld).ok());
  EXPECT_EQ(ReadFile(dir_ / "ca.pem").value().find(first), std::string::npos);
  EXPECT_TRUE(Fit("node").ok());
}

}  // namespace
}  // namespace manta::rpc
