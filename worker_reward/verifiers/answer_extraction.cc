#include "worker_reward/verifiers/answer_extraction.h"

#include <algorithm>

namespace manta::reward {
namespace {

constexpr size_t kLongestAnswer = 2000;

std::string Trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

struct Found {
  size_t at;
  std::string answer;
};

// The last \boxed{...} whose braces close.
std::optional<Found> LastBoxed(std::string_view text) {
  for (size_t from = text.size(); from > 0;) {
    const size_t boxed = text.rfind("\\boxed", from - 1), framed = text.rfind("\\fbox", from - 1);
    const size_t at = boxed == std::string_view::npos    ? framed
                      : framed == std::string_view::npos ? boxed
                                                         : std::max(boxed, framed);
    if (at == std::string_view::npos) return std::nullopt;
    size_t open = at + (text.compare(at, 6, "\\boxed") == 0 ? 6 : 5);
    while (open < text.size() && text[open] == ' ') ++open;
    if (open < text.size() && text[open] != '{') {  // \boxed 5
      const size_t end = std::min(text.find_first_of(" \n$.", open), text.size());
      if (end > open) return Found{at, Trim(text.substr(open, end - open))};
    }
    int depth = 0;
    for (size_t i = open; i < text.size() && i < open + kLongestAnswer; ++i) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == '{') {
        ++depth;
      } else if (text[i] == '}' && --depth == 0) {
        return Found{at, Trim(text.substr(open + 1, i - open - 1))};
      }
    }
    from = at;
  }
  return std::nullopt;
}

std::optional<Found> LastHash(std::string_view text) {
  const size_t at = text.rfind("####");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(
      at + 4, text.find('\n', at) == std::string_view::npos ? std::string_view::npos : text.find('\n', at) - at - 4);
  return Found{at, Trim(line.substr(0, kLongestAnswer))};
}

// The part of a line that an answer takes: a formula between $...$, or up to the end of the sentence.
std::string SentencePart(std::string_view line) {
  while (!line.empty() && std::string_view(" \t:*_=").find(line.front()) != std::string_view::npos)
    line.remove_prefix(1);
  if (const size_t open = line.find('$'); open != std::string_view::npos && open < 40) {
    const bool currency = open + 1 < line.size() && line[open + 1] >= '0' && line[open + 1] <= '9';
    const size_t begin = line.find_first_not_of('$', open);
    const size_t close = begin == std::string_view::npos ? begin : line.find('$', begin);
    if (close != std::string_view::npos &&
        !(currency && line.find_first_of("\\=^_", begin) > close && line.find(' ', begin) < close)) {
      return Trim(line.substr(begin, close - begin));
    }
  }
  size_t end = line.size();
  for (size_t i = 0; i + 1 <= line.size(); ++i) {
    const bool stop = line[i] == '.' && (i + 1 == line.size() || line[i + 1] == ' ' || line[i + 1] == '*');
    if (stop || (line[i] == '*' && i + 1 < line.size() && line[i + 1] == '*')) {
      end = i;
      break;
    }
  }
  return Trim(line.substr(0, end));
}

std::optional<Found> LastStated(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c | 32 : c);
  std::optional<Found> best;
  for (std::string_view phrase :
       {"answer is", "answer:", "answer :", "answer**:", "answer:**", "answer =", "answer equals"}) {
    const size_t at = lower.rfind(phrase);
    if (at == std::string::npos || (best && best->at > at)) continue;
    std::string_view rest = text.substr(at + phrase.size());
    const size_t first = rest.find_first_not_of(" \t\r\n:*");
    if (first == std::string_view::npos) continue;
    rest = rest.substr(first);
    rest = rest.substr(0, std::min(rest.find('\n'), kLongestAnswer));
    std::string part = SentencePart(rest);
    if (!part.empty()) best = Found{at, std::move(part)};
  }
  return best;
}

}  // namespace

std::optional<std::string> LastNumber(std::string_view text) {
  auto digit = [&](size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  size_t end = text.size();
  while (end > 0 && !digit(end - 1)) --end;
  if (end == 0) return std::nullopt;
  size_t begin = end;
  while (begin > 0) {
    const char c = text[begin - 1];
    const bool inside = (c == '.' || c == ',' || c == '/') && begin >= 2 && digit(begin - 2) && digit(begin);
    if (!digit(begin - 1) && !inside) break;
    --begin;
  }
  if (begin > 0 && text[begin - 1] == '.') --begin;  // .5
  if (begin > 0 && text[begin - 1] == '-' && (begin == 1 || !digit(begin - 2))) --begin;
  if (begin > 1 && text[begin - 1] == '$' && text[begin - 2] == '-') {
    return "-" + std::string(text.substr(begin, end - begin));
  }
  if (end < text.size() && text[end] == '%') ++end;
  return std::string(text.substr(begin, std::min(end - begin, kLongestAnswer)));
}

std::optional<std::string> ExtractAnswer(std::string_view response, AnswerForm form) {
  if (const size_t thought = response.rfind("</think>"); thought != std::string_view::npos)
    response = response.substr(thought + 8);
  const std::optional<Found> boxed = form == AnswerForm::kHash ? std::nullopt : LastBoxed(response);
  const std::optional<Found> hash = form == AnswerForm::kBoxed ? std::nullopt : LastHash(response);
  if (boxed && (!hash || boxed->at > hash->at)) return boxed->answer;
  if (hash) return hash->answer;
  if (form != AnswerForm::kAny) return std::nullopt;
  if (const std::optional<Found> stated = LastStated(response)) return stated->answer;
  return LastNumber(response);
}

std::string TruthFrom(std::string_view ground_truth) {
  if (const std::optional<Found> hash = LastHash(ground_truth)) return hash->answer;
  if (const std::optional<Found> boxed = LastBoxed(ground_truth)) return boxed->answer;
  return Trim(ground_truth);
}

}  // namespace manta::reward
