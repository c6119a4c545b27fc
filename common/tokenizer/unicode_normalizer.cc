#include "common/tokenizer/unicode_normalizer.h"

#include <utf8proc.h>

#include <cstdlib>

#include "common/base/strings.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {
namespace {

utf8proc_option_t Options(NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::kNfc || form == NormalForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

absl::Status AppendNormalized(std::string_view text, utf8proc_option_t options, std::string* out) {
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  if (length < 0) return absl::InvalidArgumentError(StrCat("utf8proc: ", utf8proc_errmsg(length)));
  out->append(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  std::free(result);
  return absl::OkStatus();
}

class UnicodeNormalizer : public NormalizerStep {
 public:
  explicit UnicodeNormalizer(NormalForm form) : options_(Options(form)), nfc_(form == NormalForm::kNfc) {}

  absl::StatusOr<bool> Apply(std::string_view text, std::string* out) const override {
    const CharTable& chars = CharTable::Get();
    const char* const end = text.data() + text.size();
    const char* copied = text.data();  // all before it is in `out`, once anything is
    const char* p = text.data();
    while (true) {
      // What is inert stays. The last inert character before one that is not may join with it.
      const char* joins = p;
      while (p < end) {
        const auto [inert, length] = IsInert(chars, p);
        if (!inert) break;
        joins = p;
        p += length;
      }
      if (p == end) break;
      out->append(copied, joins);
      while (p < end) {
        const auto [inert, length] = IsInert(chars, p);
        if (inert) break;
        p += length;
      }
      const absl::Status status =
          AppendNormalized(std::string_view(joins, static_cast<size_t>(p - joins)), options_, out);
      if (!status.ok()) return status;
      copied = p;
    }
    if (copied == text.data()) return false;
    out->append(copied, end);
    return true;
  }

 private:
  struct Inert {
    bool inert;
    int length;
  };
  // For forms other than NFC only ASCII is taken to be inert.
  Inert IsInert(const CharTable& chars, const char* p) const {
    if (static_cast<unsigned char>(*p) < 0x80) return {true, 1};
    const DecodedChar decoded = DecodeChar(p);
    return {nfc_ && (chars[decoded.c] & kNfcInert) != 0, decoded.length};
  }

  utf8proc_option_t options_;
  bool nfc_;
};

}  // namespace

std::unique_ptr<const NormalizerStep> MakeUnicodeNormalizer(NormalForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}

}  // namespace manta::tokenizer
