#include "controller/cli/generate_command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/file.h"
#include "common/base/packed.h"
#include "common/base/signals.h"
#include "common/base/status.h"
#include "common/rpc/call.h"
#include "common/rpc/channel.h"
#include "common/rpc/token.h"
#include "common/template/chat_template.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer.h"
#include "controller/cli/check.h"
#include "controller/cli/child.h"
#include "manta/v1/generator.grpc.pb.h"

namespace manta::cli {
namespace {

namespace fs = std::filesystem;

using TokenizerPtr = std::shared_ptr<const tokenizer::Tokenizer>;

// Prompts as token ids: through the chat template, or as they stand.
absl::StatusOr<std::vector<std::vector<int32_t>>> EncodePrompts(const GenerateOptions& options, const TokenizerPtr& tokenizer,
                                                                const std::string& dir) {
  std::optional<chat_template::ModelChatTemplate> chat;
  if (!options.raw) {
    absl::StatusOr<chat_template::ModelChatTemplate> loaded = chat_template::LoadChatTemplate(dir);
    if (loaded.ok()) {
      chat = *std::move(loaded);
    } else if (options.chat || !absl::IsNotFound(loaded.status())) {
      return loaded.status();
    }
  }
  if (!chat && !options.system.empty()) return UserError("--system needs a chat template, and this model has none");
  std::vector<std::vector<int32_t>> out;
  for (const std::string& prompt : options.prompts) {
    std::string text = prompt;
    if (chat) {
      chat_template::Chat conversation;
      if (!options.system.empty()) conversation.messages.push_back({{"role", "system"}, {"content", options.system}});
      conversation.messages.push_back({{"role", "user"}, {"content", prompt}});
      conversation.add_generation_prompt = true;
      MANTA_ASSIGN_OR_RETURN(chat_template::Rendered rendered, chat->Render(conversation));
      text = std::move(rendered.text);
    }
    MANTA_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer->Encode(text, /*add_special_tokens=*/!chat));
    if (tokens.empty()) return UserError(absl::StrCat("the prompt '", prompt, "' has no tokens"));
    out.push_back(std::move(tokens));
  }
  return out;
}

class Generation {
 public:
  Generation(const GenerateOptions& options, TokenizerPtr tokenizer, std::vector<std::vector<int32_t>> prompts, fs::path work_dir)
      : options_(options), tokenizer_(std::move(tokenizer)), prompts_(std::move(prompts)), work_dir_(std::move(work_dir)) {}

  absl::Status Run() {
    const SignalWatch signals(loop_, {SIGINT, SIGTERM, SIGHUP},
                              [this](int) { interrupted_.Cancel(absl::CancelledError("interrupted")); });
    absl::Status status = RunToCompletion(loop_, Drive());
    child_.reset();
    return status;
  }

 private:
  Task<absl::Status> Drive() {
    const fs::path token_file = work_dir_ / "token", log = work_dir_ / "manta-gen.log";
    absl::StatusOr<std::string> token = rpc::CreateTokenFile(token_file);
    if (!token.ok()) co_return token.status();
    absl::StatusOr<std::unique_ptr<Child>> child =
        Child::Start(loop_, "manta-gen", BinDir() / "manta-gen",
                     {"--standalone", "--token-file", token_file.string(), "--parent-pid", absl::StrCat(getpid())}, log);
    if (!child.ok()) co_return child.status();
    child_ = *std::move(child);
    absl::StatusOr<std::string> address = co_await child_->Address(absl::Seconds(30));
    if (!address.ok()) co_return address.status();
    absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = rpc::OpenChannel(*address, *token);
    if (!channel.ok()) co_return channel.status();
    stub_ = v1::GeneratorService::NewStub(*channel);
    absl::Status status = co_await Configure();
    for (size_t i = 0; status.ok() && i < prompts_.size(); ++i) status = co_await One(i);
    // The reason for a call that broke is the process that died.
    if (absl::IsUnavailable(status)) {
      const bool ended = co_await child_->WaitEnded(absl::Seconds(1));
      if (ended) co_return child_->DeathStatus();
    }
    child_->Signal(SIGTERM);
    co_await child_->WaitEnded(absl::Seconds(3));
    co_return status;
  }

  Task<absl::Status> Configure() {
    v1::ConfigureGeneratorRequest request;
    request.set_model_path(options_.model);
    request.set_stop_tokenizer_path(options_.tokenizer);
    request.mutable_device()->set_kind(options_.device == "cuda" ? v1::DEVICE_KIND_CUDA
                                       : options_.device == "cpu" ? v1::DEVICE_KIND_CPU
                                                                  : v1::DEVICE_KIND_UNSPECIFIED);
    request.mutable_device()->set_num_threads(options_.threads);
    request.set_prefix_cache(true);
    // Enough blocks for one sequence and little memory: prompts are run one after the other.
    request.set_max_num_seqs(1);
    // Named: g++ 12 destroys a temporary aggregate in a co_await expression twice.
    rpc::CallOptions options{.deadline = absl::Minutes(10), .cancel = interrupted_.token()};
    auto reply = co_await rpc::Call(loop_, stub_->async(), &rpc::AsyncOf<v1::GeneratorService>::Configure, request,
                                    std::move(options));
    co_return reply.status();
  }

  Task<absl::Status> One(size_t index) {
    v1::GenerateRequest request;
    request.set_request_id(absl::StrCat("prompt-", index));
    AppendPacked(request.mutable_prompt_tokens(), std::span<const int32_t>(prompts_[index]));
    v1::SamplingParams& sampling = *request.mutable_sampling();
    sampling.set_temperature(static_cast<float>(options_.temperature));
    sampling.set_top_k(options_.top_k);
    sampling.set_top_p(static_cast<float>(options_.top_p));
    sampling.set_min_p(static_cast<float>(options_.min_p));
    sampling.set_seed(options_.seed + index);
    sampling.set_max_new_tokens(options_.max_new_tokens);
    for (const std::string& stop : options_.stop) sampling.add_stop_strings(stop);
    request.set_stream(options_.stream);
    if (prompts_.size() > 1) std::printf("%s--- %s\n", index > 0 ? "\n" : "", options_.prompts[index].c_str());
    auto stream = rpc::OpenStream(loop_, stub_->async(), &rpc::AsyncOf<v1::GeneratorService>::Generate, request,
                                  {.deadline = absl::Hours(24), .cancel = interrupted_.token()});
    tokenizer::StreamDecoder decoder(tokenizer_, /*skip_special_tokens=*/true);
    while (true) {
      absl::StatusOr<std::optional<v1::GenerateReply>> reply = co_await stream.Next();
      if (!reply.ok()) co_return reply.status();
      if (!reply->has_value()) break;
      for (const v1::GenerateChunk& chunk : (*reply)->chunks()) {
        std::vector<int32_t> tokens;
        if (!AppendUnpacked(chunk.tokens(), &tokens)) co_return absl::InternalError("half a token came");
        for (const int32_t token : tokens) std::fputs(decoder.Push(token).c_str(), stdout);
      }
      std::fflush(stdout);
    }
    std::printf("%s\n", decoder.Finish().c_str());
    std::fflush(stdout);
    co_return absl::OkStatus();
  }

  const GenerateOptions& options_;
  const TokenizerPtr tokenizer_;
  const std::vector<std::vector<int32_t>> prompts_;
  const fs::path work_dir_;
  EventLoop loop_;
  CancelSource interrupted_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<v1::GeneratorService::Stub> stub_;
};

}  // namespace

absl::Status Generate(const GenerateOptions& options) {
  if (const auto model = CheckModel(options.model, /*weights=*/true); !model.ok()) return Annotate(model.status(), "--model");
  const std::string tokenizer_dir = options.tokenizer.empty() ? options.model : options.tokenizer;
  MANTA_ASSIGN_OR_RETURN(TokenizerPtr tokenizer, tokenizer::Tokenizer::Load(tokenizer_dir));
  MANTA_ASSIGN_OR_RETURN(auto prompts, EncodePrompts(options, tokenizer, tokenizer_dir));
  std::string work_dir = (fs::temp_directory_path() / "manta-generate.XXXXXX").string();
  if (mkdtemp(work_dir.data()) == nullptr) return ErrnoError("create the folder", work_dir, errno);
  absl::Cleanup remove = [&] {
    std::error_code ignored;
    fs::remove_all(work_dir, ignored);
  };
  return Generation(options, std::move(tokenizer), std::move(prompts), work_dir).Run();
}

}  // namespace manta::cli
