// Stripping, replacing and centring, shared by the methods of str and the filters.
#include <algorithm>

#include "common/template/text.h"
#include "common/template/text_methods.h"

namespace manta::chat_template {

std::string Strip(std::string_view text, const std::optional<std::string>& chars, bool left, bool right) {
  ChargeBytes(text.size());
  if (!chars) {
    if (left) text = StripLeft(text);
    return std::string(right ? StripRight(text) : text);
  }
  const std::vector<std::string_view> set = SplitCodePoints(*chars);
  const std::vector<std::string_view> letters = SplitCodePoints(text);
  auto in = [&](std::string_view c) { return std::find(set.begin(), set.end(), c) != set.end(); };
  ChargeSteps(static_cast<int64_t>(set.size()));
  size_t begin = 0, end = letters.size();
  while (left && begin < end && in(letters[begin])) ++begin;
  while (right && end > begin && in(letters[end - 1])) --end;
  std::string out;
  for (size_t i = begin; i < end; ++i) out += letters[i];
  return out;
}

std::string ReplaceText(std::string_view text, std::string_view from, std::string_view to, Int count) {
  ChargeBytes(text.size());
  std::string out;
  auto put = [&](std::string_view piece) {
    ChargeBytes(piece.size());
    out += piece;
  };
  if (from.empty()) {
    const std::vector<std::string_view> letters = SplitCodePoints(text);
    for (size_t i = 0; i <= letters.size(); ++i) {
      if (count != 0) put(to), --count;
      if (i < letters.size()) put(letters[i]);
    }
    return out;
  }
  for (size_t at; count != 0 && (at = text.find(from)) != std::string_view::npos; --count) {
    put(text.substr(0, at));
    put(to);
    text.remove_prefix(at + from.size());
  }
  out += text;
  return out;
}

std::string CenterText(const std::string& text, Int width, const std::string& fill) {
  const Int length = static_cast<Int>(CodePointCount(text));
  const Int missing = width - length;
  if (missing <= 0) return text;
  ChargeBytes(static_cast<size_t>(std::min<Int>(missing, Int{1} << 60)));
  const Int left = missing / 2 + (missing & width & 1);
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += text;
  for (Int i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace manta::chat_template
