#include "common/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <memory>

#include "common/tokenizer/unicode_news.h"
#include "simdjson.h"

namespace manta::tokenizer {
namespace {

constexpr char32_t kNumCodePoints = 0x110000;

struct ClassRange {
  char32_t first, last;
  CharClass kind;
};

constexpr ClassRange kSpaces[] = {
    {0x9, 0xD, kSpace},       {0x20, 0x20, kSpace},     {0x85, 0x85, kSpace},     {0xA0, 0xA0, kSpace},
    {0x1680, 0x1680, kSpace}, {0x2000, 0x200A, kSpace}, {0x2028, 0x2029, kSpace}, {0x202F, 0x202F, kSpace},
    {0x205F, 0x205F, kSpace}, {0x3000, 0x3000, kSpace},
};

// Alphabetic without being letters (circled and squared Latin letters), and the joiners.
constexpr ClassRange kOtherWords[] = {
    {0x24B6, 0x24E9, kWord},   {0x1F130, 0x1F149, kWord}, {0x1F150, 0x1F169, kWord},
    {0x1F170, 0x1F189, kWord}, {0x200C, 0x200D, kWord},
};

// From a general category, "Lu".
uint8_t FromCategory(const char* category) {
  const std::string_view name(category, 2);
  switch (name[0]) {
    case 'L':
      return kLetter | kWord;
    case 'M':
      return kMark | kWord;
    case 'N':
      return name == "No" ? kNumber : kNumber | kWord;
    case 'P':
      return name == "Pc" ? kPunctuation | kWord : kPunctuation;
    default:
      return 0;
  }
}

bool IsSurrogate(char32_t c) {
  return c >= 0xD800 && c < 0xE000;
}

// Characters that NFC may join with what stands before them: the second halves of canonical compositions.
std::unique_ptr<std::bitset<kNumCodePoints>> SecondOfComposition() {
  auto seconds = std::make_unique<std::bitset<kNumCodePoints>>();
  for (char32_t c = 0xC0; c < kNumCodePoints; ++c) {
    if (IsSurrogate(c) || (c >= 0xAC00 && c < 0xD7A4)) continue;
    if (utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->decomp_seqindex == UINT16_MAX) continue;
    utf8proc_int32_t parts[16];
    int boundclass = 0;
    const auto n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 16, UTF8PROC_DECOMPOSE, &boundclass);
    for (utf8proc_ssize_t i = 1; i < n && i < 16; ++i) seconds->set(static_cast<size_t>(parts[i]));
  }
  for (char32_t c = 0x1161; c <= 0x1175; ++c) seconds->set(c);  // Hangul vowels and final consonants
  for (char32_t c = 0x11A8; c <= 0x11C2; ++c) seconds->set(c);
  return seconds;
}

// Whether NFC leaves `c` as it is when it stands alone.
bool SameInNfc(char32_t c, const utf8proc_property_t& property) {
  if (property.decomp_seqindex == UINT16_MAX) return true;
  utf8proc_int32_t buffer[32];
  int boundclass = 0;
  auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 16, UTF8PROC_DECOMPOSE, &boundclass);
  if (n < 1 || n > 16) return false;
  n = utf8proc_normalize_utf32(buffer, n, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  return n == 1 && static_cast<char32_t>(buffer[0]) == c;
}

}  // namespace

CharTable::CharTable() {
  std::vector<uint8_t> flat(kNumCodePoints, 0);
  const auto seconds = SecondOfComposition();
  for (char32_t c = 0; c < kNumCodePoints; ++c) {
    if (IsSurrogate(c)) continue;
    const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    flat[c] = FromCategory(utf8proc_category_string(static_cast<utf8proc_int32_t>(c)));
    if (property.combining_class == 0 && !seconds->test(c) && SameInNfc(c, property)) flat[c] |= kNfcInert;
  }
  for (const AssignedRange& range : kNewlyAssigned) {
    for (char32_t c = range.first; c <= range.last; ++c) flat[c] |= FromCategory(range.category);
  }
  for (const ClassRange& range : kSpaces) {
    for (char32_t c = range.first; c <= range.last; ++c) flat[c] |= kSpace;
  }
  for (const ClassRange& range : kOtherWords) {
    for (char32_t c = range.first; c <= range.last; ++c) flat[c] |= kWord;
  }
  std::map<std::string_view, uint16_t> known;  // most blocks are alike
  for (size_t block = 0; block < index_.size(); ++block) {
    const uint8_t* begin = flat.data() + block * 256;
    const auto [it, added] = known.try_emplace(std::string_view(reinterpret_cast<const char*>(begin), 256),
                                               static_cast<uint16_t>(known.size()));
    if (added) blocks_.insert(blocks_.end(), begin, begin + 256);
    index_[block] = it->second;
  }
}

const CharTable& CharTable::Get() {
  static const CharTable* table = new CharTable;  // never destroyed: threads may outlive main
  return *table;
}

void AppendUtf8(char32_t c, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  }
}

namespace {

struct Step {
  size_t length;  // of the character, or of the longest piece that could have begun one (at least 1)
  bool valid;
  bool cut;  // not valid only because the text ends
};

// Table 3-7 of the Unicode standard: what may follow a first byte.
Step NextChar(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {1, true, false};
  size_t length;
  unsigned char low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {i, false, true};
    if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
    low = 0x80, high = 0xBF;
  }
  return {length, true, false};
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Step step = NextChar(text, at);
    if (!step.valid) break;
    at += step.length;
  }
  return at;
}

bool IsUtf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

void AppendLossyUtf8(std::string_view bytes, std::string* out) {
  if (IsUtf8(bytes)) {
    out->append(bytes);
    return;
  }
  for (size_t at = 0; at < bytes.size();) {
    const Step step = NextChar(bytes, at);
    if (step.valid) {
      out->append(bytes.substr(at, step.length));
    } else {
      out->append("\xEF\xBF\xBD");
    }
    at += step.length;
  }
}

size_t CompleteUtf8Prefix(std::string_view bytes) {
  // Only the last three bytes can begin a character that is not complete.
  for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const size_t at = bytes.size() - back;
    const unsigned char byte = static_cast<unsigned char>(bytes[at]);
    if ((byte & 0xC0) == 0x80) continue;
    const Step step = NextChar(bytes, at);
    return step.cut && at + step.length == bytes.size() ? at : bytes.size();
  }
  return bytes.size();
}

}  // namespace manta::tokenizer
