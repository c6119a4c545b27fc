// Python's view of text over UTF-8 bytes: code points, character classes and case mapping, as templates see them.
//
// Strings are held as UTF-8; positions that a template names (s[3], s.find) count code points. A byte that is not valid
// UTF-8 counts as one code point and is passed through. All functions are thread-safe and cannot fail.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace manta::chat_template {

bool IsAscii(std::string_view text);

// Number of code points.
size_t CodePointCount(std::string_view text);

// The code point that begins at `*pos`, which moves behind it. A bad byte gives 0xDC00 + byte (Python's
// surrogateescape).
char32_t NextCodePoint(std::string_view text, size_t* pos);

// False where some byte is not part of well-formed UTF-8; `*bad` is then its offset.
bool IsValidUtf8(std::string_view text, size_t* bad);

void AppendUtf8(std::string* out, char32_t code);

// One view a code point.
std::vector<std::string_view> SplitCodePoints(std::string_view text);

bool IsSpace(char32_t code);
bool IsPrintable(char32_t code);
bool IsAlpha(char32_t code);
bool IsDecimal(char32_t code);
bool IsDigit(char32_t code);
bool IsNumeric(char32_t code);
bool IsUpper(char32_t code);
bool IsLower(char32_t code);
bool IsIdentifierStart(char32_t code);
bool IsWord(char32_t code);  // \w

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);

// str.isupper and str.islower: some cased character, and none of the other case.
bool IsUpperText(std::string_view text);
bool IsLowerText(std::string_view text);

// Without the white space at either end.
std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);

// str.splitlines.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends = false);

}  // namespace manta::chat_template
