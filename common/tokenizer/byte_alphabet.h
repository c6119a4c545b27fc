// The byte-level alphabet of GPT-2: each byte as a printable character, so that a vocabulary of texts can hold any
// bytes. Printable Latin-1 stands for itself, the other bytes for U+0100 and on, in order ("Ġ" is a space). Pure and
// thread-safe.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace manta::tokenizer {

// The character of each byte, as UTF-8.
const std::array<std::string, 256>& ByteAlphabet();

// The bytes that `text` stands for; nothing where a character is not of the alphabet.
std::optional<std::string> BytesOfAlphabet(std::string_view text);

// Appends `bytes` written in the alphabet.
void AppendInAlphabet(std::string_view bytes, std::string* out);

}  // namespace manta::tokenizer
