#include "common/tokenizer/scanner.h"

namespace manta::tokenizer {
namespace {

struct Classified {
  uint8_t kind;
  int length;
};

Classified ClassAt(const CharTable& chars, const char* p) {
  const unsigned char first = static_cast<unsigned char>(*p);
  if (first < 0x80) return {chars.Ascii(first), 1};
  const DecodedChar decoded = DecodeChar(p);
  return {chars[decoded.c], decoded.length};
}

// Past the characters at `p` that have a class of `wanted`.
const char* SkipClass(const CharTable& chars, const char* p, const char* end, uint8_t wanted) {
  while (p < end) {
    const Classified next = ClassAt(chars, p);
    if ((next.kind & wanted) == 0) break;
    p += next.length;
  }
  return p;
}

constexpr uint8_t kSpaceLetterNumber = kSpace | kLetter | kNumber;

// Past what is neither space nor letter nor number.
const char* SkipOther(const CharTable& chars, const char* p, const char* end) {
  while (p < end) {
    const Classified next = ClassAt(chars, p);
    if ((next.kind & kSpaceLetterNumber) != 0) break;
    p += next.length;
  }
  return p;
}

// \s+(?!\S)|\s+ : all the space but its last character, unless it is all there is or ends the text. `run_end` is where
// the run of space that begins at `p` ends.
const char* SpaceBeforeLast(const char* p, const char* run_end, const char* end) {
  if (run_end == end) return run_end;
  const char* last = run_end - DecodeCharBefore(run_end).length;
  return last == p ? run_end : last;
}

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// The length of 's 't 're 've 'm 'll 'd at `p`, which is an apostrophe; 0 where there is none.
template <bool kIgnoreCase>
int Contraction(const char* p, const char* end) {
  const auto letter = [&](int i) { return p + i < end ? (kIgnoreCase ? Lower(p[i]) : p[i]) : '\0'; };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return letter(2) == 'e' ? 3 : 0;
    case 'l':
      return letter(2) == 'l' ? 3 : 0;
    case '\xC5':  // U+017F, the long s, is an s where case does not count
      return kIgnoreCase && letter(2) == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

const char* ScanGpt2(const CharTable& chars, const char* p, const char* end) {
  if (*p == '\'') {
    if (const int length = Contraction<false>(p, end)) return p + length;
  }
  const char* word = *p == ' ' && p + 1 < end ? p + 1 : p;
  const Classified first = ClassAt(chars, word);
  if (first.kind & kLetter) return SkipClass(chars, word + first.length, end, kLetter);
  if (first.kind & kNumber) return SkipClass(chars, word + first.length, end, kNumber);
  if ((first.kind & kSpace) == 0) return SkipOther(chars, word + first.length, end);
  return SpaceBeforeLast(p, SkipClass(chars, word + first.length, end, kSpace), end);
}

template <int kMaxDigits>
const char* ScanLlama3(const CharTable& chars, const char* p, const char* end) {
  if (*p == '\'') {
    if (const int length = Contraction<true>(p, end)) return p + length;
  }
  const Classified first = ClassAt(chars, p);
  const char* after = p + first.length;
  if (first.kind & kLetter) return SkipClass(chars, after, end, kLetter);
  if (first.kind & kNumber) {
    for (int i = 1; i < kMaxDigits && after < end; ++i) {
      const Classified next = ClassAt(chars, after);
      if ((next.kind & kNumber) == 0) break;
      after += next.length;
    }
    return after;
  }
  Classified second = {kSpace, 0};
  if (after < end) second = ClassAt(chars, after);
  if ((second.kind & kLetter) && *p != '\r' && *p != '\n') {
    return SkipClass(chars, after + second.length, end, kLetter);
  }
  const bool other = (first.kind & kSpace) == 0;
  if (other || (*p == ' ' && (second.kind & kSpaceLetterNumber) == 0)) {
    after = SkipOther(chars, after, end);
    while (after < end && (*after == '\r' || *after == '\n')) ++after;
    return after;
  }
  // Space: up to the last line end in it, if it has one.
  const char* run_end = SkipClass(chars, after, end, kSpace);
  for (const char* q = run_end; q > p; --q) {
    if (q[-1] == '\r' || q[-1] == '\n') return q;
  }
  return SpaceBeforeLast(p, run_end, end);
}

}  // namespace

ScanFunction FindScanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return ScanGpt2;
  if (pattern == kLlama3Pattern) return ScanLlama3<3>;
  if (pattern == kQwen2Pattern) return ScanLlama3<1>;
  return nullptr;
}

}  // namespace manta::tokenizer
