#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/fake_agent.h"
#include "tests/sim/real_agent.h"

namespace manta::sim {
namespace {

// The head's end of a stream.
class StreamPort : public core::AgentPort {
 public:
  explicit StreamPort(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void Send(const v1::NodeCommand& command) override { stream_->ToAgent(command); }
  void Close(const absl::Status& status) override { stream_->CloseHead(status); }

 private:
  std::shared_ptr<Stream> stream_;
};

constexpr size_t kLogLines = 200;

}  // namespace

World::World(WorldOptions options) : options_(std::move(options)), random_(options_.seed, 7) {
  for (int i = 0; i < options_.nodes; ++i) {
    v1::NodeHello hello;
    hello.set_node(absl::StrCat("n", i));
    hello.set_host_id(hello.node());
    hello.set_cpu_slots(static_cast<int>(2 + Below(7)));
    const int gpus = Below(3) == 0 ? 0 : static_cast<int>(1 + Below(8));
    for (int gpu = 0; gpu < gpus; ++gpu) {
      hello.add_gpus()->set_index(gpu);
      hello.mutable_gpus(gpu)->set_nvlink_domain(absl::StrCat("rack", i / 4));
    }
    (*hello.mutable_labels())["zone"] = i % 2 == 0 ? "a" : "b";
    const SimHost::DialFn dial = [this](SimHost& host, std::shared_ptr<Stream>* stream) { return Dial(host, stream); };
    if (i < options_.real_agents) {
      agents_.push_back(std::make_unique<RealAgent>(*loop_, random_, truth_, hello, dial));
    } else {
      agents_.push_back(std::make_unique<FakeAgent>(*loop_, random_, truth_, hello, dial));
    }
  }
  if (options_.calls) MakeCalls();
}

void World::MakeCalls() {
  Calls::Options calls{.seed = options_.seed, .wild = options_.wild};
  calls.fencing = options_.fault != "no_fencing" && options_.fault != "fences_ignored";
  calls.sealing = options_.fault != "no_sealing";
  calls.link_of = [this](const std::string& node) -> std::shared_ptr<Link> {
    for (const auto& agent : agents_) {
      if (agent->name() == node) return agent->link();
    }
    return nullptr;
  };
  calls.ask_head = [this](v1::ListReply* reply) {
    if (core_ == nullptr) return false;
    v1::ListRequest request;
    request.set_actors(true);
    core_->List(request, reply);
    return true;
  };
  calls_ = std::make_unique<Calls>(*loop_, truth_, std::move(calls));
  truth_.on_started = [this](const Process& process) { calls_->Started(process); };
  truth_.on_ended = [this](const std::string& actor_id, uint64_t epoch) { calls_->Ended(actor_id, epoch); };
  truth_.on_fence = [this](const std::string& actor_id, uint64_t epoch, const v1::Fence& fence) {
    calls_->Fenced(actor_id, epoch, fence);
  };
}

World::~World() {
  truth_.on_started = nullptr;
  truth_.on_ended = nullptr;
  truth_.on_fence = nullptr;
  core_.reset();
  agents_.clear();
  for (const std::weak_ptr<Stream>& weak : streams_) {
    if (const auto stream = weak.lock()) stream->Clear();
  }
}

void World::Log(const std::string& line) {
  log_.push_back(absl::StrFormat("%8.3f %s", absl::ToDoubleSeconds(loop_->Now() - absl::UnixEpoch()), line));
  if (options_.trace) std::printf("%s\n", log_.back().c_str());
  if (log_.size() > kLogLines) log_.pop_front();
}

// ---- The head

void World::StartHead() {
  ++incarnation_;
  journal_ = std::make_unique<core::MemoryJournal>(
      *loop_, disk_, [this] { return absl::Microseconds(1000 + Below(6000)) + commit_slowness_; });
  core_ = std::make_unique<core::Core>(
      *loop_, *journal_, nullptr,
      core::CoreOptions{.incarnation = incarnation_, .run_dir = "/run", .seed = options_.seed, .fault = options_.fault},
      disk_->Rows());
  verified_ = ~uint64_t{0};
  Log(absl::StrCat("head ", incarnation_, " starts with ", disk_->rows.size(), " rows"));
  // Everybody asks again what was not answered; what was answered must still be so.
  for (auto& [name, ask] : asks_) {
    if (ask.state == Ask::State::kRemoving) {
      Remove(ask);
    } else if (ask.state != Ask::State::kGone) {
      AskFor(ask);
    }
  }
}

void World::CrashHead(absl::Duration down) {
  if (core_ == nullptr) return;
  Log("head is killed");
  core_.reset();
  journal_.reset();
  loop_->RunAfter(down, [this] {
    if (core_ == nullptr) StartHead();
  });
}

SimHost::Dial World::Dial(SimHost& agent, std::shared_ptr<Stream>* stream) {
  if (agent.link()->cut) return SimHost::Dial::kSilence;
  if (core_ == nullptr) return SimHost::Dial::kRefused;
  *stream = std::make_shared<Stream>(*loop_, random_, agent.link());
  streams_.push_back(*stream);
  auto session = std::make_shared<uint64_t>(0);
  const uint64_t head = incarnation_;
  std::weak_ptr<Stream> weak = *stream;
  (*stream)->at_head = [this, head, session, weak](const v1::NodeEvent& event) {
    ++events_;
    const auto self = weak.lock();
    if (core_ == nullptr || incarnation_ != head) {
      if (self != nullptr) self->CloseHead(absl::UnavailableError("reset"));  // its socket went with the process
      return;
    }
    if (event.has_hello()) {
      const auto joined = core_->NodeJoined(event.hello(), std::make_shared<StreamPort>(self));
      if (!joined.ok()) {
        Log(absl::StrCat(event.hello().node(), " is refused: ", joined.status().message()));
        self->CloseHead(joined.status());
        return;
      }
      *session = *joined;
    } else {
      core_->OnNodeEvent(*session, event);
    }
    Verify();
  };
  (*stream)->head_lost = [this, head, session] {
    if (core_ != nullptr && incarnation_ == head && *session != 0) {
      core_->NodeDisconnected(*session, absl::UnavailableError("its stream has ended"));
      Verify();
    }
  };
  return SimHost::Dial::kStream;
}

void World::Verify() {
  if (core_ == nullptr || core_->version() == verified_) return;
  verified_ = core_->version();
  for (const std::string& broken : core_->CheckInvariants()) truth_.Broken(broken);
}

// ---- Those who ask

void World::NewPlacement() {
  const std::string name = absl::StrCat("p", ++names_);
  Ask& ask = asks_[name];
  ask.what = Ask::What::kPlacement;
  ask.name = name;
  ask.placement.set_key(name);
  ask.placement.set_name(name);
  ask.placement.add_bundles()->set_cpu_slots(static_cast<int>(Below(2)));
  ask.placement.mutable_bundles(0)->set_gpus(static_cast<int>(Below(3)));
  ask.placement.set_repeat(static_cast<int>(1 + Below(6)));
  ask.placement.set_strategy(static_cast<v1::Strategy>(Below(5)));
  ask.placement.set_priority(static_cast<int>(Below(3)));
  ask.placement.set_deadline_ms(static_cast<int64_t>(Below(4) * 5000));
  if (Below(4) == 0) ask.placement.set_segment(2);
  if (Below(4) == 0) (*ask.placement.mutable_selector())["zone"] = "a";
  AskFor(ask);
}

void World::NewGroup() {
  const std::string name = absl::StrCat("g", ++names_);
  Ask& ask = asks_[name];
  ask.what = Ask::What::kGroup;
  ask.name = name;
  v1::PlacementRequest& placement = *ask.group.mutable_placement();
  placement.add_bundles()->set_cpu_slots(static_cast<int>(Below(2)));
  placement.mutable_bundles(0)->set_gpus(static_cast<int>(Below(3)));
  if (placement.bundles(0).gpus() == 1 && Below(3) == 0) placement.mutable_bundles(0)->set_gpu_slot("shared");
  placement.set_repeat(static_cast<int>(1 + Below(5)));
  placement.set_strategy(static_cast<v1::Strategy>(Below(5)));
  placement.set_deadline_ms(20000);
  ask.group.set_role(name);
  ask.group.set_executable("/bin/worker");
  ask.group.set_start_deadline_ms(15000);
  if (Below(4) == 0) ask.group.set_ports_per_rank(1);
  ask.group.mutable_restart()->set_kind(static_cast<v1::RestartPolicy::Kind>(1 + Below(3)));
  ask.group.mutable_restart()->set_max_restarts(Below(2) == 0 ? -1 : 2);
  AskFor(ask);
}

void World::AskFor(Ask& ask) {
  if (core_ == nullptr) return;  // asked when it is there again
  ask.head = incarnation_;
  const int generation = ++ask.generation;
  const std::string name = ask.name;
  const uint64_t head = incarnation_;
  const bool was_there = ask.state == Ask::State::kThere;
  if (ask.what == Ask::What::kPlacement) {
    core_->CreatePlacement(ask.placement, [this, name, head, generation,
                                           was_there](absl::StatusOr<v1::PlacementReply> reply) {
      Ask& now = asks_[name];
      if (!Answered(now, head, generation) || now.state == Ask::State::kRemoving) return;
      if (!reply.ok()) {
        Log(absl::StrCat("placement ", name, ": ", reply.status().ToString()));
        if (was_there)
          truth_.Broken(absl::StrCat("placement ", name, " was acknowledged and is gone: ", reply.status().ToString()));
        now.state = Ask::State::kGone;
        return;
      }
      std::vector<std::pair<std::string, std::vector<int>>> ranks;
      for (const auto& rank : reply->ranks())
        ranks.emplace_back(rank.node(), std::vector<int>(rank.gpus().begin(), rank.gpus().end()));
      if (was_there && (now.id != reply->id() || now.ranks != ranks)) {
        truth_.Broken(absl::StrCat("placement ", name, " was acknowledged and is another after a restart"));
      }
      now.id = reply->id();
      now.ranks = std::move(ranks);
      now.state = Ask::State::kThere;
    });
  } else if (!was_there) {
    core_->CreateGroup(ask.group, [this, name, head, generation](absl::StatusOr<v1::GroupReply> reply) {
      Ask& now = asks_[name];
      if (!Answered(now, head, generation) || now.state == Ask::State::kRemoving) return;
      Log(absl::StrCat("group ", name, ": ",
                       reply.ok() ? absl::StrCat("ready, epoch ", reply->epoch()) : reply.status().ToString()));
      now.state = Ask::State::kThere;
      // One that did not start is gone by itself; asking for its end anyway is what a careful program does.
      if (!reply.ok()) Remove(now);
    });
  } else {
    v1::ListRequest request;
    request.set_groups(true);
    request.set_role(name);
    v1::ListReply reply;
    core_->List(request, &reply);
    if (reply.groups().empty()) truth_.Broken(absl::StrCat("group ", name, " was acknowledged and is gone"));
  }
  Verify();
}

void World::Remove(Ask& ask) {
  ask.state = Ask::State::kRemoving;
  if (core_ == nullptr) return;
  ask.head = incarnation_;
  const int generation = ++ask.generation;
  const auto answer = [this, name = ask.name, head = incarnation_, generation](absl::StatusOr<v1::Done> done) {
    Ask& now = asks_[name];
    if (!Answered(now, head, generation)) return;
    if (done.ok()) {
      now.state = Ask::State::kGone;
    } else {
      Log(absl::StrCat("removal of ", name, ": ", done.status().ToString()));
      loop_->RunAfter(absl::Seconds(1), [this, name] {
        if (asks_[name].state == Ask::State::kRemoving) Remove(asks_[name]);
      });
    }
  };
  if (ask.what == Ask::What::kPlacement) {
    if (ask.id == 0) {  // not known which: ask first
      ask.state = Ask::State::kGone;
      return;
    }
    core_->RemovePlacement(ask.id, answer);
  } else {
    core_->RemoveGroup({core::kOnlyJob, ask.name}, absl::Milliseconds(Below(1500)), answer);
  }
  Verify();
}

// ---- What happens

void World::Act() {
  SimHost& agent = *agents_[Below(agents_.size())];
  // Two of four seeds have everything; one has mostly silence (stopped agents, cut cables), one mostly dead heads and
  // bad disks: rare coincidences of the same kind.
  static constexpr int kSilence[] = {0, 2, 2, 2, 3, 6, 11, 11, 12, 12, 14, 14, 15, 15, 20};
  static constexpr int kHeads[] = {0, 1, 2, 2, 3, 4, 6, 9, 10, 16, 16, 17, 17, 18, 19, 21};
  uint64_t action = Below(22);
  if (options_.seed % 4 == 1) action = kSilence[Below(std::size(kSilence))];
  if (options_.seed % 4 == 3) action = kHeads[Below(std::size(kHeads))];
  switch (action) {
    case 0:
    case 1:
      if (asks_.size() < 400) NewPlacement();
      break;
    case 2:
      if (asks_.size() < 400) NewGroup();
      break;
    case 3:
    case 4:
    case 5: {
      std::vector<Ask*> there;
      for (auto& [name, ask] : asks_) {
        if (ask.state == Ask::State::kThere) there.push_back(&ask);
      }
      if (!there.empty()) Remove(*there[Below(there.size())]);
      break;
    }
    case 6:
    case 7:
    case 8:
      Log(absl::StrCat("a worker of ", agent.name(), " crashes"));
      agent.CrashOne();
      break;
    case 9:
    case 10: {
      const absl::Duration down = Between(0.2, 15);
      Log(absl::StrCat("the agent of ", agent.name(), " is killed for ", absl::FormatDuration(down)));
      agent.KillAgent(down);
      break;
    }
    case 11:
    case 12: {
      const absl::Duration time = Between(0.5, 20);
      Log(absl::StrCat("the agent of ", agent.name(), " is stopped for ", absl::FormatDuration(time)));
      agent.Freeze(time);
      break;
    }
    case 13: {
      const absl::Duration down = Between(2.5, 30);
      Log(absl::StrCat(agent.name(), " reboots for ", absl::FormatDuration(down)));
      agent.Reboot(down);
      break;
    }
    case 14:
    case 15: {
      const absl::Duration time = Between(0.5, 25);
      Log(absl::StrCat(agent.name(), " is cut off for ", absl::FormatDuration(time)));
      agent.CutCable(time);
      break;
    }
    case 16:
    case 17:
      CrashHead(Between(0.1, 12));
      break;
    case 18:
      commit_slowness_ = Between(0, 2);
      loop_->RunAfter(Between(1, 8), [this] { commit_slowness_ = absl::ZeroDuration(); });
      break;
    case 19:
      if (journal_ != nullptr) {
        Log("the disk is full");
        journal_->set_health(absl::ResourceExhaustedError("journal: no space left on the device"));
        loop_->RunAfter(Between(0.5, 10), [this] {
          if (journal_ != nullptr) journal_->set_health(absl::OkStatus());
        });
      }
      break;
    case 20: {
      agent.link()->slowness = Between(0, 1.5);
      loop_->RunAfter(Between(1, 10), [&agent] { agent.link()->slowness = absl::ZeroDuration(); });
      break;
    }
    case 21:
      if (core_ != nullptr) {
        v1::DrainRequest request;
        request.add_nodes(agent.name());
        request.set_undo(Below(2) == 0);
        core_->Drain(request, [](absl::StatusOr<v1::Done>) {});
        Log(absl::StrCat(agent.name(), request.undo() ? " is opened" : " is drained"));
      }
      break;
  }
  Verify();
}

void World::Schedule() {
  loop_->RunAfter(absl::Milliseconds(50 + Below(1500)), [this] {
    if (calm_) return;
    Act();
    Schedule();
  });
}

std::vector<std::string> World::Run() {
  StartHead();
  for (auto& agent : agents_) {
    loop_->RunAfter(absl::Milliseconds(Below(500)), [&agent] { agent->Boot(); });
  }
  Schedule();
  if (calls_ != nullptr) calls_->Begin();
  // In slices, so that what the loop does by itself is looked at as well.
  for (absl::Duration done; done < options_.duration && truth_.broken().empty(); done += absl::Milliseconds(500)) {
    loop_->RunFor(absl::Milliseconds(500));
    Verify();
  }
  if (truth_.broken().empty()) Quiesce();
  return truth_.broken();
}

}  // namespace manta::sim
