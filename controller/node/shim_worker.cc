#include "controller/node/shim_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/shim_link.h"
#include "controller/node/environment.h"
#include "controller/node/packet_socket.h"
#include "controller/node/state_dir.h"
#include "google/protobuf/util/json_util.h"

namespace manta::node {
namespace {

constexpr int kWorkerLinkFd = 3;

}  // namespace

ShimWorker::ShimWorker(Host host, v1::StartActor start) : host_(std::move(host)), start_(std::move(start)) {}

ShimWorker::~ShimWorker() {
  host_.loop->Cancel(kill_timer_);
  if (process_.has_value()) host_.loop->Unwatch(process_->pidfd());
  for (int fd : {out_, err_, link_}) {
    if (fd < 0) continue;
    host_.loop->Unwatch(fd);
    close(fd);
  }
}

v1::ActorReport ShimWorker::Report() const {
  v1::ActorReport report;
  report.set_actor_id(start_.actor_id());
  report.set_epoch(start_.epoch());
  report.set_pid(pid());
  return report;
}

absl::Status ShimWorker::Start() {
  if (absl::Status status = log_.Open(start_.log_path()); !status.ok()) return status;
  WorkerEnvironment environment = BuildEnvironment(OwnEnvironment(), start_);
  for (const std::string& note : environment.notes) Log(note);
  environment.variables[actor::kShimFdVariable] = absl::StrCat(kWorkerLinkFd);
  int out[2], err[2], link[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || !MakePacketSocket(link)) {
    return absl::ErrnoToStatus(errno, "no descriptors for the worker");
  }
  auto spawned = Process::Spawn({.executable = start_.executable(),
                                 .args = {start_.args().begin(), start_.args().end()},
                                 .env = std::move(environment.variables),
                                 .only_env = true,
                                 .stdout_fd = out[1],
                                 .stderr_fd = err[1],
                                 .pass_fd = link[1],
                                 .death_signal = SIGKILL,
                                 .new_process_group = true});
  for (int fd : {out[1], err[1], link[1]}) close(fd);
  out_ = out[0];
  err_ = err[0];
  link_ = link[0];
  for (int fd : {out_, err_}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    host_.loop->WatchReadable(fd, [this, fd] {
      if (!Copy(fd)) host_.loop->Unwatch(fd);
    });
  }
  host_.loop->WatchReadable(link_, [this] {
    if (ReadReport() == Received::kClosed) host_.loop->Unwatch(link_);
  });
  if (!spawned.ok()) return spawned.status();
  process_.emplace(std::move(*spawned));
  host_.loop->WatchReadable(process_->pidfd(), [this] { Ended(); });
  snapshot_.set_started_unix_ms(absl::ToUnixMillis(absl::Now()));
  v1::ActorReport report = Report();
  v1::ActorStarted* started = report.mutable_started();
  started->set_actor_id(start_.actor_id());
  started->set_epoch(start_.epoch());
  started->set_pid(pid());
  host_.report(std::move(report));
  return absl::OkStatus();
}

// What can be read now goes to the log. False at the end.
bool ShimWorker::Copy(int fd) {
  char buffer[16 << 10];
  for (int i = 0; i < 64; ++i) {  // a flood does not keep the loop from its other work
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    const std::string_view bytes(buffer, static_cast<size_t>(n));
    log_.Write(bytes);
    if (fd == err_) tail_.Append(bytes);
  }
  return true;
}

Received ShimWorker::ReadReport() {
  v1::WorkerReport worker;
  const Received received = ReceiveMessage(link_, &worker);
  if (received != Received::kMessage) return received;
  if (worker.has_ready()) *snapshot_.mutable_ready() = worker.ready();
  if (worker.has_beat()) *snapshot_.mutable_beat() = worker.beat();
  v1::ActorReport report = Report();
  *report.mutable_worker() = std::move(worker);
  host_.report(std::move(report));
  return received;
}

void ShimWorker::Order(const v1::WorkerOrder& order) {
  if (order.has_stacks()) return AskForStacks(order.stacks().reason());
  if (link_ >= 0) SendMessage(link_, order);  // a worker that does not read learns by its signals
}

// Each thread of a worker of ours writes its stack when it gets SIGUSR2 (common/actor/thread_stacks.h); any other
// program would die of it.
void ShimWorker::AskForStacks(const std::string& reason) {
  if (!process_.has_value()) return;
  std::ifstream status(absl::StrCat("/proc/", pid(), "/status"));
  uint64_t caught = 0;
  for (std::string word; status >> word;) {
    if (word == "SigCgt:") status >> std::hex >> caught;
  }
  if ((caught >> (SIGUSR2 - 1) & 1) == 0) return;
  Log(absl::StrCat("the stacks of all threads follow: ", reason));
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid(), "/task"), ignored)) {
    pid_t id = 0;
    if (absl::SimpleAtoi(thread.path().filename().string(), &id)) syscall(SYS_tgkill, pid(), id, SIGUSR2);
  }
}

void ShimWorker::Terminate(absl::Duration grace, bool asked_to_stop) {
  if (!process_.has_value()) return;
  asked_to_stop_ |= asked_to_stop;
  process_->Signal(SIGTERM);
  process_->Signal(SIGCONT);  // a stopped one could not even take the first
  host_.loop->Cancel(kill_timer_);
  kill_timer_ = host_.loop->RunAfter(grace, [this] { process_->Signal(SIGKILL); });
}

void ShimWorker::Fence(const std::string& why) {
  if (!process_.has_value()) return;
  fenced_ = true;
  Log(why);
  kill(-pid(), SIGKILL);
  process_->Signal(SIGKILL);
}

v1::ActorReport ShimWorker::Snapshot() const {
  v1::ActorReport report = Report();
  *report.mutable_snapshot() = snapshot_;
  return report;
}

void ShimWorker::Ended() {
  const auto exit = process_->TryWait();
  if (!exit.has_value()) return;
  host_.loop->Unwatch(process_->pidfd());
  host_.loop->Cancel(kill_timer_);
  kill(-pid(), SIGKILL);  // what it has left running
  Copy(err_);
  Copy(out_);
  while (ReadReport() == Received::kMessage) continue;  // what it said last
  v1::ActorReport report = Report();
  v1::ActorExited* exited = report.mutable_exited();
  exited->set_actor_id(start_.actor_id());
  exited->set_epoch(start_.epoch());
  exited->set_pid(pid());
  exited->set_exit_code(exit->code);
  exited->set_exit_signal(exit->signal);
  for (const std::string& line : tail_.Lines()) exited->add_last_lines(line);
  exited->set_asked_to_stop(asked_to_stop_);
  exited->set_fenced(fenced_);
  host_.report(report);
  log_.Write(absl::StrCat("manta-shim: ", start_.actor_id(), " (pid ", pid(), ") ", exit->ToString(), "\n"));
  WriteRecord(*exited);
  host_.ended(report);
}

// RUN/logs/ACTOR.log has its record in RUN/actors/ACTOR.EPOCH.json.
void ShimWorker::WriteRecord(const v1::ActorExited& exited) const {
  const std::filesystem::path logs = std::filesystem::path(start_.log_path()).parent_path();
  if (logs.filename() != "logs") return;
  std::string json;
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  (void)google::protobuf::util::MessageToJsonString(exited, &json, options);
  const std::filesystem::path folder = logs.parent_path() / "actors";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  ReplaceFile((folder / (StateName(start_.actor_id(), start_.epoch()) + ".json")).string(), json);
}

}  // namespace manta::node
