// AddedTokens: the tokens that are looked for in the text before anything else ("<|im_start|>"), tokenizer.json's
// "added_tokens". Const and thread-safe after loading.
//
// They are found in two rounds: those with "normalized": false in the text as given, then the others, themselves
// normalised, in what is left, normalised. At each place the longest wins. Decoding writes those others normalised too,
// and then does not know special ones again ("▁<s>" is not "<s>"): so does Hugging Face's 0.23. What its loader would
// number otherwise than the file does is refused.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/bpe_model.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/normalizer.h"

namespace manta::tokenizer {

struct AddedToken {
  int32_t id;
  std::string content;
  bool single_word;  // not within a word
  bool lstrip;       // takes the space before it along
  bool rstrip;       // and after it
  bool normalized;
  bool special;
  std::string written;  // what decoding writes for it: its content, normalised where `normalized` is set
  bool skipped =
      false;  // whether decoding leaves it out with skip_special_tokens: `written` is a special token's content
};

class AddedTokens {
 public:
  AddedTokens() = default;
  static absl::StatusOr<AddedTokens> Load(const JsonNode& node, const BpeModel& model, const Normalizer& normalizer);

  enum class Round { kAsGiven, kNormalized };
  struct Part {
    size_t begin, end;
    int32_t id;  // of the token there; -1: text
  };
  // Appends the parts of `text` in order: tokens and the text between them.
  void Split(std::string_view text, Round round, std::vector<Part>* parts) const;
  bool None(Round round) const { return matcher(round).num_tokens == 0; }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Null where no added token has the id, or the text.
  const AddedToken* Find(int32_t id) const;
  const AddedToken* Find(std::string_view content) const;

 private:
  // A trie over bytes; node 0 is the root.
  struct Matcher {
    // False where the same content was added before.
    bool Add(std::string_view content, size_t token);
    // Finds the next token in `text` from byte `from` on.
    bool Next(std::string_view text, size_t from, size_t* begin, size_t* end, size_t* token) const;

    size_t num_tokens = 0;
    std::array<bool, 256> starts = {};
    int only_start = -1;                               // the one byte that all begin with; -1: none yet, -2: several
    absl::flat_hash_map<uint64_t, uint32_t> children;  // node << 8 | byte -> node
    std::vector<int64_t> ends = {-1};                  // [nodes]: index of the token that ends there, or -1
  };
  const Matcher& matcher(Round round) const { return round == Round::kAsGiven ? as_given_ : normalized_; }
  absl::Status Check(const JsonNode& node, const AddedToken& token, const BpeModel& model, int64_t* next_id) const;

  std::vector<AddedToken> tokens_;  // in the file's order
  absl::flat_hash_map<int32_t, size_t> by_id_;
  std::map<std::string, size_t, std::less<>> by_content_;
  Matcher as_given_, normalized_;
};

}  // namespace manta::tokenizer
