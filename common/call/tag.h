// Tag: what a completion queue hands back when an operation of gRPC's is done. Each operation has its own Tag, which
// holds its owner while it is under way, so that an owner may be let go at any time.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace manta::call {

class Tag {
 public:
  virtual ~Tag() = default;
  virtual void Run(bool ok) = 0;
};

// Calls a member of `Owner`; Begin before the operation is given to gRPC.
template <typename Owner>
class OpTag final : public Tag {
 public:
  explicit OpTag(void (Owner::*done)(bool)) : done_(done) {}
  Tag* Begin(std::shared_ptr<Owner> owner) {
    owner_ = std::move(owner);
    return this;
  }
  void Run(bool ok) override {
    const std::shared_ptr<Owner> owner = std::move(owner_);
    (owner.get()->*done_)(ok);
  }

 private:
  void (Owner::*const done_)(bool);
  std::shared_ptr<Owner> owner_;
};

// Runs once and deletes itself.
class OnceTag final : public Tag {
 public:
  static Tag* Make(std::function<void(bool)> run) { return new OnceTag(std::move(run)); }
  void Run(bool ok) override {
    run_(ok);
    delete this;
  }

 private:
  explicit OnceTag(std::function<void(bool)> run) : run_(std::move(run)) {}
  std::function<void(bool)> run_;
};

}  // namespace manta::call
