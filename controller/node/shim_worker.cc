#include "controller/node/shim_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/actor/shim_link.h"
#include "common/actor/zygote.h"
#include "common/base/kill.h"
#include "common/base/process_info.h"
#include "controller/node/stacks.h"
#include "controller/node/state_dir.h"
#include "google/protobuf/util/json_util.h"

namespace manta::node {
namespace {

constexpr int kWorkerLinkFd = 3;
constexpr absl::Duration kBeatIsLate = absl::Seconds(2);  // workers beat once a second
constexpr absl::Duration kBeatAgain = absl::Seconds(1);
constexpr absl::Duration kVouchFor = absl::Minutes(1);
constexpr double kComputes = 0.1;  // of one processor: a process that only waits uses less

}  // namespace

ShimWorker::ShimWorker(Host host, v1::StartActor start) : host_(std::move(host)), start_(std::move(start)) {}

ShimWorker::~ShimWorker() {
  CloseChildEnds();
  host_.loop->Cancel(kill_timer_);
  host_.loop->Cancel(stack_timer_);
  host_.loop->Cancel(beat_timer_);
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

absl::Status ShimWorker::Prepare() {
  if (absl::Status status = log_.Open(start_.log_path()); !status.ok()) return status;
  environment_ = BuildEnvironment(OwnEnvironment(), start_);
  for (const std::string& note : environment_.notes) Log(note);
  auto limits = ApplyLimits(start_.limits(), StateName(start_.actor_id(), start_.epoch()));
  if (!limits.ok()) return limits.status();
  limits_.resources = std::move(limits->resources);
  if (limits->memory.has_value()) limits_.memory.emplace(std::move(*limits->memory));
  for (const std::string& note : limits->notes) Log(note);
  int out[2], err[2], link[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 || !MakePacketSocket(link)) {
    return absl::ErrnoToStatus(errno, "no descriptors for the worker");
  }
  out_ = out[0];
  err_ = err[0];
  link_ = link[0];
  child_fds_ = {out[1], err[1], link[1]};
  for (int fd : {out_, err_}) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    host_.loop->WatchReadable(fd, [this, fd] {
      if (!Copy(fd)) host_.loop->Unwatch(fd);
    });
  }
  host_.loop->WatchReadable(link_, [this] {
    if (ReadReport() == Received::kClosed) host_.loop->Unwatch(link_);
  });
  return absl::OkStatus();
}

absl::Status ShimWorker::Execute() {
  std::map<std::string, std::string> variables = environment_.variables;
  variables[actor::kShimFdVariable] = absl::StrCat(kWorkerLinkFd);
  ProcessSpec spec{.executable = start_.executable(),
                   .args = {start_.args().begin(), start_.args().end()},
                   .env = std::move(variables),
                   .only_env = true,
                   .working_dir = environment_.variables[actor::kWorkingDirVariable],
                   .stdout_fd = child_fds_[0],
                   .stderr_fd = child_fds_[1],
                   .pass_fd = child_fds_[2],
                   .death_signal = SIGKILL,
                   .new_process_group = true,
                   .limits = limits_.resources};
  if (limits_.memory.has_value()) spec.cgroup_fds = {limits_.memory->procs_fd()};
  auto spawned = Process::Spawn(spec);
  if (!spawned.ok()) return spawned.status();
  Begin(std::move(*spawned));
  return absl::OkStatus();
}

v1::StartActor ShimWorker::Request() const {
  v1::StartActor request = start_;
  request.mutable_env()->clear();
  request.mutable_env()->insert(environment_.variables.begin(), environment_.variables.end());
  return request;
}

void ShimWorker::Forked(pid_t pid) {
  for (const ProcessSpec::Limit& limit : limits_.resources) {
    const rlimit value{limit.value, limit.value};
    prlimit(pid, static_cast<__rlimit_resource>(limit.resource), &value, nullptr);
  }
  if (limits_.memory.has_value() && !limits_.memory->Add(pid)) Log("it could not be put into its memory cgroup");
  Begin(Process::FromChild(pid, OpenPidFd(pid)));  // not reaped yet: the number is its own
}

void ShimWorker::CloseChildEnds() {
  for (int& fd : child_fds_) {
    if (fd >= 0) close(std::exchange(fd, -1));
  }
}

void ShimWorker::Begin(Process process) {
  CloseChildEnds();
  process_.emplace(std::move(process));
  host_.loop->WatchReadable(process_->pidfd(), [this] { Ended(); });
  snapshot_.set_started_unix_ms(absl::ToUnixMillis(absl::Now()));
  v1::ActorReport report = Report();
  v1::ActorStarted* started = report.mutable_started();
  started->set_actor_id(start_.actor_id());
  started->set_epoch(start_.epoch());
  started->set_pid(pid());
  host_.report(std::move(report));
  if (end_at_once_.has_value()) Terminate(*end_at_once_, asked_to_stop_);
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
  if (worker.has_beat()) {
    *snapshot_.mutable_beat() = worker.beat();
    own_beat_ = host_.loop->Now();
    cpu_time_.reset();
    host_.loop->Cancel(beat_timer_);
    beat_timer_ = host_.loop->RunAfter(kBeatIsLate, [this] { BeatIsLate(); });
  }
  v1::ActorReport report = Report();
  *report.mutable_worker() = std::move(worker);
  host_.report(std::move(report));
  return received;
}

// A worker that computes is not dead, though something that it computes may keep it from saying so: in Python, one long
// operation in C holds up every thread. Its last beat is said again while it uses the processor, for a minute at most.
void ShimWorker::BeatIsLate() {
  beat_timer_ = 0;
  if (!process_.has_value() || host_.loop->Now() - own_beat_ > kVouchFor) return;
  const absl::Duration used = CpuTimeOf(pid());
  const bool first = !cpu_time_.has_value();
  if (!first && used - *cpu_time_ >= kComputes * kBeatAgain) {
    v1::ActorReport report = Report();
    *report.mutable_worker()->mutable_beat() = snapshot_.beat();
    host_.report(std::move(report));
  }
  cpu_time_ = used;
  beat_timer_ = host_.loop->RunAfter(kBeatAgain, [this] { BeatIsLate(); });
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
  Log(absl::StrCat(kStacksFollow, reason));
  std::error_code ignored;
  threads_to_ask_.clear();
  for (const auto& thread : std::filesystem::directory_iterator(absl::StrCat("/proc/", pid(), "/task"), ignored)) {
    pid_t id = 0;
    if (absl::SimpleAtoi(thread.path().filename().string(), &id)) threads_to_ask_.push_back(id);
  }
  std::sort(threads_to_ask_.begin(), threads_to_ask_.end(), std::greater<>());  // the main thread is asked first
  AskNextThread();
}

// One a millisecond: Python's handler drops a request that comes while it writes another thread's stack.
void ShimWorker::AskNextThread() {
  host_.loop->Cancel(stack_timer_);
  stack_timer_ = 0;
  if (threads_to_ask_.empty()) return;
  syscall(SYS_tgkill, pid(), threads_to_ask_.back(), SIGUSR2);
  threads_to_ask_.pop_back();
  stack_timer_ = host_.loop->RunAfter(absl::Milliseconds(1), [this] { AskNextThread(); });
}

void ShimWorker::Terminate(absl::Duration grace, bool asked_to_stop) {
  asked_to_stop_ |= asked_to_stop;
  if (!process_.has_value()) {
    end_at_once_ = grace;
    return;
  }
  process_->Signal(SIGTERM);
  process_->Signal(SIGCONT);  // a stopped one could not even take the first
  host_.loop->Cancel(kill_timer_);
  kill_timer_ = host_.loop->RunAfter(grace, [this] { process_->Signal(SIGKILL); });
}

void ShimWorker::Fence(const std::string& why) {
  fenced_ = true;
  Log(why);
  if (!process_.has_value()) {
    end_at_once_ = absl::ZeroDuration();
    return;
  }
  KillGroup(pid(), SIGKILL);
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
  host_.loop->Cancel(stack_timer_);
  host_.loop->Cancel(beat_timer_);
  KillGroup(pid(), SIGKILL);  // what it has left running
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
  if (limits_.memory.has_value()) {
    exited->set_oom(limits_.memory->killed_any());
    exited->set_peak_bytes(limits_.memory->peak_bytes());
    if (exited->oom()) {
      const std::string line = absl::StrCat("manta-shim: out of memory: ", start_.actor_id(), " may use ",
                                            start_.limits().memory_bytes() >> 20, " MiB (limits.memory)");
      log_.Write(line + "\n");
      exited->add_last_lines(line);
    }
  }
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
