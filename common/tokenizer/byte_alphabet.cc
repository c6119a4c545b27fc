#include "common/tokenizer/byte_alphabet.h"

#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t c = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
      AppendUtf8(c, &texts[static_cast<size_t>(byte)]);
      bytes[c] = byte;
    }
  }
  std::array<std::string, 256> texts;
  std::array<int, 0x144> bytes;  // by character; -1 for none
};

const Alphabet& Get() {
  static const Alphabet* alphabet = new Alphabet;
  return *alphabet;
}

}  // namespace

const std::array<std::string, 256>& ByteAlphabet() {
  return Get().texts;
}

std::optional<std::string> BytesOfAlphabet(std::string_view text) {
  const Alphabet& alphabet = Get();
  std::string bytes;
  bytes.reserve(text.size());
  for (const char* p = text.data(); p < text.data() + text.size();) {
    const DecodedChar next = DecodeChar(p);
    if (next.c >= alphabet.bytes.size() || alphabet.bytes[next.c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet.bytes[next.c]));
    p += next.length;
  }
  return bytes;
}

void AppendInAlphabet(std::string_view bytes, std::string* out) {
  const Alphabet& alphabet = Get();
  for (const char byte : bytes) out->append(alphabet.texts[static_cast<unsigned char>(byte)]);
}

}  // namespace manta::tokenizer
