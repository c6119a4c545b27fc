// What the tokenizer asks of Unicode: UTF-8 in and out, and the classes of characters that splitting rules speak of.
//
// The classes come from utf8proc, put into a two-stage table on first use (a few milliseconds); characters newer than
// utf8proc's Unicode are added from a list, so that \p{L}, \p{N} and \s are those of Unicode 16, which Hugging Face's
// regex engine has. All functions are thread-safe and cannot fail.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace manta::tokenizer {

enum CharClass : uint8_t {
  kLetter = 1,       // \p{L}
  kNumber = 2,       // \p{N}
  kSpace = 4,        // White_Space, which is \s
  kPunctuation = 8,  // \p{P}
  kMark = 16,        // \p{M}
  kWord = 32,        // \w as UTS 18 has it
  kNfcInert = 64,    // in NFC as it stands, starts a new group, never joins what stands before
};

class CharTable {
 public:
  static const CharTable& Get();

  uint8_t operator[](char32_t c) const { return blocks_[(index_[c >> 8] << 8) | (c & 0xFF)]; }
  // The same for a byte below 0x80.
  uint8_t Ascii(unsigned char c) const { return blocks_[c]; }

 private:
  CharTable();
  std::array<uint16_t, 0x1100> index_;
  std::vector<uint8_t> blocks_;  // [num_blocks, 256]; the first is that of U+0000
};

// The character at `p` of valid UTF-8, and its length in bytes.
struct DecodedChar {
  char32_t c;
  int length;
};
inline DecodedChar DecodeChar(const char* p) {
  const auto b = [p](int i) { return static_cast<unsigned char>(p[i]); };
  const unsigned char first = b(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1Fu) << 6 | (b(1) & 0x3Fu), 2};
  if (first < 0xF0) return {(first & 0x0Fu) << 12 | (b(1) & 0x3Fu) << 6 | (b(2) & 0x3Fu), 3};
  return {(first & 0x07u) << 18 | (b(1) & 0x3Fu) << 12 | (b(2) & 0x3Fu) << 6 | (b(3) & 0x3Fu), 4};
}

// The length of the character that begins with byte `first` of valid UTF-8.
inline int CharLength(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// The character that ends just before `p` (which must not be at the text's beginning).
inline DecodedChar DecodeCharBefore(const char* p) {
  int length = 1;
  while ((static_cast<unsigned char>(p[-length]) & 0xC0) == 0x80) ++length;
  return DecodeChar(p - length);
}

void AppendUtf8(char32_t c, std::string* out);

// How many bytes of `text` are valid UTF-8 from its beginning; text.size() where all are.
size_t ValidUtf8Prefix(std::string_view text);
bool IsUtf8(std::string_view text);

// Appends `bytes`, each longest piece that is no UTF-8 replaced by U+FFFD, as the WHATWG's decoders do.
void AppendLossyUtf8(std::string_view bytes, std::string* out);

// The length of the longest prefix that does not end within a character that further bytes could complete.
size_t CompleteUtf8Prefix(std::string_view bytes);

}  // namespace manta::tokenizer
