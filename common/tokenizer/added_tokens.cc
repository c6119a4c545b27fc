#include "common/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "common/base/status.h"
#include "common/base/strings.h"
#include "common/tokenizer/unicode.h"

namespace manta::tokenizer {
namespace {

absl::StatusOr<AddedToken> LoadOne(const JsonNode& node) {
  AddedToken token;
  MANTA_ASSIGN_OR_RETURN(const JsonNode id, node.Need("id"));
  MANTA_ASSIGN_OR_RETURN(const int64_t value, id.AsInt(0, BpeModel::kMaxId));
  token.id = static_cast<int32_t>(value);
  MANTA_ASSIGN_OR_RETURN(const JsonNode content, node.Need("content"));
  MANTA_ASSIGN_OR_RETURN(token.content, content.AsString());
  if (token.content.empty()) return content.Error("is empty");
  MANTA_ASSIGN_OR_RETURN(token.single_word, node.BoolOr("single_word", false));
  MANTA_ASSIGN_OR_RETURN(token.lstrip, node.BoolOr("lstrip", false));
  MANTA_ASSIGN_OR_RETURN(token.rstrip, node.BoolOr("rstrip", false));
  MANTA_ASSIGN_OR_RETURN(token.special, node.BoolOr("special", false));
  MANTA_ASSIGN_OR_RETURN(token.normalized, node.BoolOr("normalized", !token.special));
  return token;
}

bool WordBefore(std::string_view text, size_t at) {
  return at > 0 && (CharTable::Get()[DecodeCharBefore(text.data() + at).c] & kWord) != 0;
}

bool WordAfter(std::string_view text, size_t at) {
  return at < text.size() && (CharTable::Get()[DecodeChar(text.data() + at).c] & kWord) != 0;
}

size_t SpaceBegin(std::string_view text, size_t at) {
  while (at > 0) {
    const DecodedChar last = DecodeCharBefore(text.data() + at);
    if ((CharTable::Get()[last.c] & kSpace) == 0) break;
    at -= static_cast<size_t>(last.length);
  }
  return at;
}

size_t SpaceEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    const DecodedChar next = DecodeChar(text.data() + at);
    if ((CharTable::Get()[next.c] & kSpace) == 0) break;
    at += static_cast<size_t>(next.length);
  }
  return at;
}

}  // namespace

bool AddedTokens::Matcher::Add(std::string_view content, size_t token) {
  if (content.empty()) return true;  // normalised to nothing: cannot stand in a text
  ++num_tokens;
  const int first = static_cast<unsigned char>(content[0]);
  starts[static_cast<size_t>(first)] = true;
  only_start = only_start == -1 || only_start == first ? first : -2;
  uint32_t node = 0;
  for (const char byte : content) {
    const uint64_t key = uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    const auto [it, added] = children.try_emplace(key, static_cast<uint32_t>(ends.size()));
    if (added) ends.push_back(-1);
    node = it->second;
  }
  if (ends[node] >= 0) return false;
  ends[node] = static_cast<int64_t>(token);
  return true;
}

bool AddedTokens::Matcher::Next(std::string_view text, size_t from, size_t* begin, size_t* end, size_t* token) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (only_start >= 0) {
      const void* found = std::memchr(text.data() + at, only_start, text.size() - at);
      if (found == nullptr) return false;
      at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    } else if (!starts[static_cast<unsigned char>(text[at])]) {
      continue;
    }
    uint32_t node = 0;
    int64_t longest = -1;
    for (size_t i = at; i < text.size(); ++i) {
      const auto it = children.find(uint64_t{node} << 8 | static_cast<unsigned char>(text[i]));
      if (it == children.end()) break;
      node = it->second;
      if (ends[node] >= 0) {
        longest = ends[node];
        *end = i + 1;
      }
    }
    if (longest >= 0) {
      *begin = at;
      *token = static_cast<size_t>(longest);
      return true;
    }
  }
  return false;
}

absl::Status AddedTokens::Check(const JsonNode& node, const AddedToken& token, const BpeModel& model,
                                int64_t* next_id) const {
  if (const AddedToken* other = Find(token.id)) {
    return node.Error(StrCat("\"", token.content, "\" has the same id as \"", other->content, "\", ", token.id));
  }
  if (Find(token.content) != nullptr) return node.Error(StrCat("\"", token.content, "\" appears twice"));
  if (const auto known = model.IdOf(token.content)) {
    if (*known == token.id) return absl::OkStatus();
    return node.Error(StrCat("\"", token.content, "\" has id ", token.id, " here and ", *known, " in model.vocab"));
  }
  if (const std::string_view other = model.TokenOf(token.id); other.data() != nullptr) {
    return node.Error(
        StrCat("\"", token.content, "\" has id ", token.id, ", which model.vocab gives to \"", other, "\""));
  }
  if (token.id != *next_id) {
    return node.Error(StrCat("\"", token.content, "\" has id ", token.id, ", but the next free id is ", *next_id));
  }
  ++*next_id;
  return absl::OkStatus();
}

absl::StatusOr<AddedTokens> AddedTokens::Load(const JsonNode& node, const BpeModel& model,
                                              const Normalizer& normalizer) {
  AddedTokens added;
  MANTA_ASSIGN_OR_RETURN(const std::vector<JsonNode> list, node.AsList());
  int64_t next_id = static_cast<int64_t>(model.num_tokens());
  std::set<std::string> special;
  for (const JsonNode& item : list) {
    MANTA_ASSIGN_OR_RETURN(AddedToken token, LoadOne(item));
    MANTA_RETURN_IF_ERROR(added.Check(item, token, model, &next_id));
    token.written = token.content;
    if (token.normalized) {
      std::string buffer;
      bool head_removed = false;
      const absl::StatusOr<std::string_view> written = normalizer.Apply(token.content, &buffer, &head_removed);
      if (!written.ok()) return item.Error(std::string(written.status().message()));
      token.written = std::string(*written);
    }
    const size_t index = added.tokens_.size();
    Matcher& matcher = token.normalized ? added.normalized_ : added.as_given_;
    if (!matcher.Add(token.written, index)) {
      return item.Error(
          StrCat("\"", token.content, "\" is another added token once it is normalised: \"", token.written, "\""));
    }
    if (token.special) special.insert(token.content);
    added.by_id_[token.id] = index;
    added.by_content_[token.content] = index;
    added.tokens_.push_back(std::move(token));
  }
  for (AddedToken& token : added.tokens_) token.skipped = special.count(token.written) > 0;
  return added;
}

void AddedTokens::Split(std::string_view text, Round round, std::vector<Part>* parts) const {
  const Matcher& matcher = this->matcher(round);
  size_t done = 0;  // what lies before is in `parts`
  if (matcher.num_tokens > 0) {
    size_t begin = 0, end = 0, index = 0;
    for (size_t from = 0; matcher.Next(text, from, &begin, &end, &index);) {
      from = end;
      const AddedToken& token = tokens_[index];
      if (token.single_word && (WordBefore(text, begin) || WordAfter(text, end))) continue;
      if (token.lstrip) begin = std::max(SpaceBegin(text, begin), done);
      if (token.rstrip) end = SpaceEnd(text, end);
      if (done < begin) parts->push_back({done, begin, -1});
      parts->push_back({begin, end, token.id});
      done = end;
    }
  }
  if (done < text.size()) parts->push_back({done, text.size(), -1});
}

const AddedToken* AddedTokens::Find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::Find(std::string_view content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

}  // namespace manta::tokenizer
