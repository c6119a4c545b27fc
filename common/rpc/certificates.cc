#include "common/rpc/certificates.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/file.h"
#include "common/base/status.h"
#include "common/rpc/certificate_name.h"
#include "common/rpc/token.h"

namespace manta::rpc {
namespace {

template <typename T, void (*Free)(T*)>
struct Deleter {
  void operator()(T* object) const { Free(object); }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Deleter<X509, X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO, BIO_free_all>>;

absl::Status OpenSslError(absl::string_view what) {
  char text[256] = "unknown";
  if (const unsigned long error = ERR_get_error(); error != 0) ERR_error_string_n(error, text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", text));
}

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string Pem(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return Text(bio.get());
}

std::string Pem(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return Text(bio.get());
}

absl::StatusOr<PemFile> ReadPem(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(std::string pem, ReadFile(path, 1 << 20));
  return PemFile{.path = path.string(), .content = std::move(pem)};
}

absl::StatusOr<Key> KeyOf(const PemFile& file) {
  const Bio bio(BIO_new_mem_buf(file.content.data(), static_cast<int>(file.content.size())));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (key == nullptr) return UserError(absl::StrCat(file.path, ": holds no private key (PEM)"));
  return key;
}

absl::StatusOr<std::vector<Certificate>> CertificatesOf(const PemFile& file) {
  const Bio bio(BIO_new_mem_buf(file.content.data(), static_cast<int>(file.content.size())));
  std::vector<Certificate> found;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) found.emplace_back(next);
  ERR_clear_error();
  if (found.empty()) return UserError(absl::StrCat(file.path, ": holds no certificate (PEM)"));
  return found;
}

absl::StatusOr<Key> ReadKey(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(const PemFile file, ReadPem(path));
  return KeyOf(file);
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::filesystem::path& path) {
  MANTA_ASSIGN_OR_RETURN(const PemFile file, ReadPem(path));
  return CertificatesOf(file);
}

bool Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool ok = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return ok;
}

struct Holder {
  std::string common_name;
  std::string uri;  // empty: a CA
  std::string dns;
  absl::Time from, until;
};

// `issuer` and `issuer_key` null: signed by itself.
absl::StatusOr<Certificate> Sign(const Holder& holder, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new());
  X509* const x509 = certificate.get();
  unsigned char serial[16];
  bool ok = X509_set_version(x509, 2) == 1 && RAND_bytes(serial, sizeof(serial)) == 1;
  serial[0] &= 0x7f;
  BIGNUM* number = BN_bin2bn(serial, sizeof(serial), nullptr);
  ok = ok && number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x509)) != nullptr;
  BN_free(number);
  ok = ok && ASN1_TIME_set(X509_getm_notBefore(x509), absl::ToTimeT(holder.from)) != nullptr &&
       ASN1_TIME_set(X509_getm_notAfter(x509), absl::ToTimeT(holder.until)) != nullptr &&
       X509_set_pubkey(x509, key) == 1;
  X509_NAME* const name = X509_get_subject_name(x509);
  ok = ok &&
       X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                  reinterpret_cast<const unsigned char*>(holder.common_name.c_str()), -1, -1, 0) == 1;
  ok = ok && X509_set_issuer_name(x509, issuer != nullptr ? X509_get_subject_name(issuer) : name) == 1;
  X509* const authority = issuer != nullptr ? issuer : x509;
  ok = ok && Extend(x509, authority, NID_subject_key_identifier, "hash");
  if (holder.uri.empty()) {
    ok = ok && Extend(x509, authority, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
         Extend(x509, authority, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    ok = ok && Extend(x509, authority, NID_authority_key_identifier, "keyid") &&
         Extend(x509, authority, NID_basic_constraints, "critical,CA:FALSE") &&
         Extend(x509, authority, NID_key_usage, "critical,digitalSignature") &&
         Extend(x509, authority, NID_ext_key_usage, "serverAuth,clientAuth") &&
         Extend(x509, authority, NID_subject_alt_name, absl::StrCat("URI:", holder.uri, ",DNS:", holder.dns));
  }
  ok = ok && X509_sign(x509, issuer_key != nullptr ? issuer_key : key, EVP_sha256()) > 0;
  if (!ok) return OpenSslError("cannot make a certificate");
  return certificate;
}

absl::Status Check(const CertificateOptions& options) {
  if (!IsPlainName(options.job)) {
    return UserError(absl::StrCat("\"", options.job, "\" is no job's name: 1 to 64 letters, digits, '.', '-', '_'"));
  }
  for (const std::string& node : options.nodes) {
    if (!IsPlainName(node) || node == "ca" || RoleOf(node) != v1::ROLE_UNSPECIFIED) {
      return UserError(absl::StrCat("\"", node, "\" is no node's name for a certificate"));
    }
  }
  return absl::OkStatus();
}

struct Authority {
  Key key;
  Certificate certificate;
};

absl::StatusOr<Authority> ReadAuthority(const std::filesystem::path& dir) {
  const std::filesystem::path key_path = dir / "ca.key", path = dir / "ca.pem";
  Authority authority;
  MANTA_ASSIGN_OR_RETURN(authority.key, ReadKey(key_path));
  MANTA_ASSIGN_OR_RETURN(std::vector<Certificate> found, ReadCertificates(path));
  authority.certificate = std::move(found[0]);
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    ERR_clear_error();
    return UserError(absl::StrCat(key_path.string(), " is not the key of the first certificate in ", path.string()));
  }
  return authority;
}

// `others`: CA certificates that stay trusted.
absl::StatusOr<Authority> MakeAuthority(const std::filesystem::path& dir, const CertificateOptions& options,
                                        absl::Time from, const std::vector<Certificate>& others) {
  Authority authority;
  authority.key = Key(EVP_EC_gen("P-256"));
  if (authority.key == nullptr) return OpenSslError("cannot make a key");
  const Holder holder{.common_name = absl::StrCat("Manta CA of ", options.job),
                      .uri = "",
                      .dns = "",
                      .from = from,
                      .until = from + std::max(options.ca_valid, options.valid)};
  MANTA_ASSIGN_OR_RETURN(authority.certificate, Sign(holder, authority.key.get(), nullptr, nullptr));
  std::string content = Pem(authority.certificate.get());
  for (const Certificate& other : others) absl::StrAppend(&content, Pem(other.get()));
  MANTA_RETURN_IF_ERROR(WriteSecretFile(dir / "ca.key", absl::StripSuffix(Pem(authority.key.get()), "\n")));
  MANTA_RETURN_IF_ERROR(WriteFileAtomically(dir / "ca.pem", content));
  return authority;
}

}  // namespace

absl::Status InitCertificates(const std::filesystem::path& dir, const CertificateOptions& options, CaStep step) {
  MANTA_RETURN_IF_ERROR(Check(options));
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return ErrnoError("make", dir, error.value());
  const absl::Time from = options.from == absl::InfinitePast() ? absl::Now() - absl::Minutes(5) : options.from;
  const bool there = std::filesystem::exists(dir / "ca.pem", error);
  if (there && step == CaStep::kAdd) {
    MANTA_ASSIGN_OR_RETURN(const std::vector<Certificate> old, ReadCertificates(dir / "ca.pem"));
    return MakeAuthority(dir, options, from, old).status();
  }
  if (step == CaStep::kDropOld) {
    MANTA_ASSIGN_OR_RETURN(const Authority authority, ReadAuthority(dir));
    return WriteFileAtomically(dir / "ca.pem", Pem(authority.certificate.get()));
  }
  absl::StatusOr<Authority> authority = there ? ReadAuthority(dir) : MakeAuthority(dir, options, from, {});
  MANTA_RETURN_IF_ERROR(authority.status());

  std::vector<CertificateName> holders;
  for (const v1::Role role : kRoles) holders.push_back({options.job, role, std::string(RoleName(role))});
  for (const std::string& node : options.nodes) holders.push_back({options.job, v1::ROLE_NODE, node});
  for (const CertificateName& name : holders) {
    const Key key(EVP_EC_gen("P-256"));
    if (key == nullptr) return OpenSslError("cannot make a key");
    const Holder holder{
        .common_name = name.name, .uri = name.Uri(), .dns = name.Dns(), .from = from, .until = from + options.valid};
    MANTA_ASSIGN_OR_RETURN(const Certificate certificate,
                           Sign(holder, key.get(), authority->certificate.get(), authority->key.get()));
    const std::filesystem::path stem = dir / name.name;
    MANTA_RETURN_IF_ERROR(WriteSecretFile(stem.string() + ".key", absl::StripSuffix(Pem(key.get()), "\n")));
    MANTA_RETURN_IF_ERROR(WriteFileAtomically(stem.string() + ".pem", Pem(certificate.get())));
  }
  return absl::OkStatus();
}

namespace {

std::string UriOf(X509* certificate) {
  std::string uri;
  auto* names = static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_URI) continue;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.uniformResourceIdentifier)),
               static_cast<size_t>(ASN1_STRING_length(name->d.uniformResourceIdentifier)));
    break;
  }
  GENERAL_NAMES_free(names);
  return uri;
}

}  // namespace

absl::StatusOr<std::string> CheckFit(const PemFile& ca, const PemFile& certificate, const PemFile& key) {
  MANTA_ASSIGN_OR_RETURN(const std::vector<Certificate> roots, CertificatesOf(ca));
  MANTA_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, CertificatesOf(certificate));
  MANTA_ASSIGN_OR_RETURN(const Key private_key, KeyOf(key));
  X509* const leaf = chain[0].get();
  const bool ours = X509_check_private_key(leaf, private_key.get()) == 1;
  bool is_signed = false;
  for (const Certificate& root : roots) is_signed = is_signed || X509_verify(leaf, X509_get0_pubkey(root.get())) == 1;
  ERR_clear_error();
  if (!ours) return UserError(absl::StrCat(key.path, " is not the key of ", certificate.path));
  if (!is_signed) return UserError(absl::StrCat(certificate.path, " was not signed by ", ca.path));
  return UriOf(leaf);
}

absl::StatusOr<std::string> CheckFilesFit(const std::filesystem::path& ca, const std::filesystem::path& certificate,
                                          const std::filesystem::path& key) {
  MANTA_ASSIGN_OR_RETURN(const PemFile ca_file, ReadPem(ca));
  MANTA_ASSIGN_OR_RETURN(const PemFile certificate_file, ReadPem(certificate));
  MANTA_ASSIGN_OR_RETURN(const PemFile key_file, ReadPem(key));
  return CheckFit(ca_file, certificate_file, key_file);
}

bool HoldsCertificates(const PemFile& file) {
  return CertificatesOf(file).ok();
}

absl::StatusOr<std::vector<CertificateName>> HoldersIn(const std::filesystem::path& dir) {
  std::vector<CertificateName> holders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().extension() != ".pem" || entry.path().stem() == "ca") continue;
    MANTA_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ReadCertificates(entry.path()));
    std::optional<CertificateName> name = CertificateName::Parse(UriOf(chain[0].get()));
    if (!name.has_value()) return UserError(absl::StrCat(entry.path().string(), ": names nobody of a job"));
    holders.push_back(*std::move(name));
  }
  if (error) return ErrnoError("read the folder", dir, error.value());
  std::sort(holders.begin(), holders.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return holders;
}

absl::StatusOr<absl::Time> ValidUntil(const std::filesystem::path& certificate) {
  MANTA_ASSIGN_OR_RETURN(const std::vector<Certificate> chain, ReadCertificates(certificate));
  tm until{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(chain[0].get()), &until) != 1) {
    ERR_clear_error();
    return UserError(absl::StrCat(certificate.string(), ": says no time until which it is valid"));
  }
  return absl::FromTM(until, absl::UTCTimeZone());
}

}  // namespace manta::rpc
