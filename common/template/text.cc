#include "common/template/text.h"

#include <utf8proc.h>

namespace manta::chat_template {
namespace {

// Length of the well-formed sequence at `pos`, or 0.
size_t SequenceLength(std::string_view text, size_t pos) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  auto tail = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(pos);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(pos + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!tail(pos + 1) || !tail(pos + 2)) return 0;
    if (lead == 0xE0 && byte(pos + 1) < 0xA0) return 0;
    if (lead == 0xED && byte(pos + 1) > 0x9F) return 0;
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!tail(pos + 1) || !tail(pos + 2) || !tail(pos + 3)) return 0;
    if (lead == 0xF0 && byte(pos + 1) < 0x90) return 0;
    if (lead == 0xF4 && byte(pos + 1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

utf8proc_category_t Category(char32_t code) {
  if (code >= 0xD800 && code <= 0xDFFF) return UTF8PROC_CATEGORY_CS;
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

// Code points whose upper case is several (Unicode's SpecialCasing, the ones in use).
const char* SpecialUpper(char32_t code) {
  switch (code) {
    case 0xDF:
      return "SS";
    case 0x149:
      return "\xCA\xBCN";
    case 0x1F0:
      return "J\xCC\x8C";
    case 0x587:
      return "\xD4\xB5\xD5\x92";
    case 0xFB00:
      return "FF";
    case 0xFB01:
      return "FI";
    case 0xFB02:
      return "FL";
    case 0xFB03:
      return "FFI";
    case 0xFB04:
      return "FFL";
    case 0xFB05:
    case 0xFB06:
      return "ST";
    default:
      return nullptr;
  }
}

bool IsCased(char32_t code) {
  return IsUpper(code) || IsLower(code) || Category(code) == UTF8PROC_CATEGORY_LT;
}

void AppendUpper(std::string* out, char32_t code, std::string_view raw) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code));
  } else if (const char* special = SpecialUpper(code)) {
    out->append(special);
  } else if (code >= 0xDC80 && code <= 0xDCFF) {
    out->append(raw);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
  }
}

void AppendTitle(std::string* out, char32_t code, std::string_view raw) {
  if (const char* special = SpecialUpper(code)) {  // only the first of them is upper case
    out->push_back(special[0]);
    out->append(ToLower(special + 1));
  } else if (code < 0x80 || (code >= 0xDC80 && code <= 0xDCFF)) {
    AppendUpper(out, code, raw);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code))));
  }
}

// A capital sigma at the end of a word becomes the final form.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t pos = 0; pos < begin;) {
    const char32_t code = NextCodePoint(text, &pos);
    if (code != '\'' && code != 0xAD) cased_before = IsCased(code);
  }
  if (!cased_before) return false;
  for (size_t pos = end; pos < text.size();) {
    const char32_t code = NextCodePoint(text, &pos);
    if (code == '\'' || code == 0xAD) continue;
    return !IsCased(code);
  }
  return true;
}

void AppendLower(std::string* out, char32_t code, std::string_view text, size_t begin, size_t end) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code));
  } else if (code == 0x130) {
    out->append("i\xCC\x87");
  } else if (code == 0x3A3 && IsFinalSigma(text, begin, end)) {
    AppendUtf8(out, 0x3C2);
  } else if (code >= 0xDC80 && code <= 0xDCFF) {
    out->append(text.substr(begin, end - begin));
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

template <typename F>
void ForEach(std::string_view text, F f) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t code = NextCodePoint(text, &pos);
    f(code, begin, pos);
  }
}

}  // namespace

bool IsAscii(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

size_t CodePointCount(std::string_view text) {
  if (IsAscii(text)) return text.size();
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); ++count) {
    const size_t length = SequenceLength(text, pos);
    pos += length == 0 ? 1 : length;
  }
  return count;
}

char32_t NextCodePoint(std::string_view text, size_t* pos) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const size_t at = *pos;
  const size_t length = SequenceLength(text, at);
  *pos += length == 0 ? 1 : length;
  switch (length) {
    case 1:
      return byte(at);
    case 2:
      return (byte(at) & 0x1F) << 6 | (byte(at + 1) & 0x3F);
    case 3:
      return (byte(at) & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F);
    case 4:
      return (byte(at) & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 | (byte(at + 2) & 0x3F) << 6 | (byte(at + 3) & 0x3F);
    default:
      return 0xDC00 + byte(at);
  }
}

bool IsValidUtf8(std::string_view text, size_t* bad) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = SequenceLength(text, pos);
    if (length == 0) {
      *bad = pos;
      return false;
    }
    pos += length;
  }
  return true;
}

void AppendUtf8(std::string* out, char32_t code) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xC0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out->push_back(static_cast<char>(0xF0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

std::vector<std::string_view> SplitCodePoints(std::string_view text) {
  std::vector<std::string_view> out;
  ForEach(text, [&](char32_t, size_t begin, size_t end) { out.push_back(text.substr(begin, end - begin)); });
  return out;
}

bool IsSpace(char32_t code) {
  return (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool IsPrintable(char32_t code) {
  if (code == ' ') return true;
  switch (Category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlpha(char32_t code) {
  const auto category = Category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t code) {
  return Category(code) == UTF8PROC_CATEGORY_ND;
}
bool IsDigit(char32_t code) {
  return IsDecimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) || (code >= 0x2460 && code <= 0x2468);
}
bool IsNumeric(char32_t code) {
  const auto category = Category(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}
bool IsUpper(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z';
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(code)) != 0;
}
bool IsLower(char32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z';
  return utf8proc_islower(static_cast<utf8proc_int32_t>(code)) != 0;
}
bool IsIdentifierStart(char32_t code) {
  if (code < 0x80) return code == '_' || (code | 32) - 'a' < 26;
  return IsAlpha(code) || Category(code) == UTF8PROC_CATEGORY_NL;
}
bool IsWord(char32_t code) {
  if (code < 0x80) return code == '_' || (code | 32) - 'a' < 26 || (code >= '0' && code <= '9');
  return IsAlpha(code) || IsNumeric(code);
}

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEach(text, [&](char32_t code, size_t b, size_t e) { AppendUpper(&out, code, text.substr(b, e - b)); });
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  ForEach(text, [&](char32_t code, size_t b, size_t e) { AppendLower(&out, code, text, b, e); });
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool in_word = false;
  ForEach(text, [&](char32_t code, size_t b, size_t e) {
    if (in_word) {
      AppendLower(&out, code, text, b, e);
    } else {
      AppendTitle(&out, code, text.substr(b, e - b));
    }
    in_word = IsCased(code);
  });
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  ForEach(text, [&](char32_t code, size_t b, size_t e) {
    if (b == 0) {
      AppendTitle(&out, code, text.substr(b, e - b));
    } else {
      AppendLower(&out, code, text, b, e);
    }
  });
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  ForEach(text, [&](char32_t code, size_t b, size_t e) {
    if (IsUpper(code)) {
      AppendLower(&out, code, text, b, e);
    } else if (IsLower(code)) {
      AppendUpper(&out, code, text.substr(b, e - b));
    } else {
      out.append(text.substr(b, e - b));
    }
  });
  return out;
}

bool IsUpperText(std::string_view text) {
  bool cased = false, ok = true;
  ForEach(text, [&](char32_t code, size_t, size_t) {
    if (IsUpper(code)) {
      cased = true;
    } else if (IsLower(code) || Category(code) == UTF8PROC_CATEGORY_LT) {
      ok = false;
    }
  });
  return ok && cased;
}

bool IsLowerText(std::string_view text) {
  bool cased = false, ok = true;
  ForEach(text, [&](char32_t code, size_t, size_t) {
    if (IsLower(code)) {
      cased = true;
    } else if (IsUpper(code) || Category(code) == UTF8PROC_CATEGORY_LT) {
      ok = false;
    }
  });
  return ok && cased;
}

std::string_view StripLeft(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (!IsSpace(NextCodePoint(text, &pos))) return text.substr(begin);
  }
  return {};
}

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t pos = begin;
    if (!IsSpace(NextCodePoint(text, &pos)) || pos != text.size()) return text;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const char32_t code = NextCodePoint(text, &pos);
    const bool ends = (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 || code == 0x2028 ||
                      code == 0x2029;
    if (!ends) continue;
    if (code == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(start, (keep_ends ? pos : begin) - start));
    start = pos;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

}  // namespace manta::chat_template
