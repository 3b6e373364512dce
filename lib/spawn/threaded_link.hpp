// A link that is served by its own thread: the state that link and thread share, and the owner's read-only calls.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/unique_fd.hpp"
#include "spawn/agent_link.hpp"
#include "spawn/output_tail.hpp"

namespace dslaunch::spawn {

// The progress of the link. A backend adds what its thread needs.
struct LinkState {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  // Guarded by `mutex`; the thread may read without it those members that only the thread changes.
  OutputTail errors;
  bool killed = false, done = false;
  std::optional<ExitCause> cause;
  std::optional<LinkFailure> failure;

  // Used by the thread only: the far ends of the caller's two pipes.
  UniqueFd input, output;

  // The thread's last call. `why` is kept unless the owner ended the link, and is set before `output` ends.
  void finish(std::optional<LinkFailure> why);
};

class ThreadedLink : public CommandLink {
 public:
  explicit ThreadedLink(std::shared_ptr<LinkState> state) : link_(std::move(state)) {}

  LinkEnds take_ends() override { return std::move(ends_); }
  std::optional<LinkFailure> failure() const override;
  bool wait(Deadline deadline) override;
  std::optional<ExitCause> cause() const override;
  std::string errors() const override;

 protected:
  LinkEnds ends_;  // the caller's, until it takes them

 private:
  std::shared_ptr<LinkState> link_;
};

}  // namespace dslaunch::spawn
