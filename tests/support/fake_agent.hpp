// The far side of a way to an agent, for tests of the supervisor: what an agent says and hears, without one.
#pragma once
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <variant>

#include "launch/channel/channel.hpp"
#include "launch/channel/wire.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "spawn/agent_link.hpp"

namespace dslaunch::test {

// The way to an agent that came to us by itself.
class SocketLink final : public spawn::AgentLink {
 public:
  explicit SocketLink(int socket) : socket_(socket) {}
  spawn::LinkEnds take_ends() override { return {UniqueFd(::dup(socket_)), UniqueFd(socket_)}; }
  std::optional<spawn::LinkFailure> failure() const override { return std::nullopt; }
  void kill() override {}
  bool wait(Deadline) override { return true; }

 private:
  int socket_;
};

// The agent at the other end of a SocketLink.
class FakeAgent {
 public:
  explicit FakeAgent(int socket) : channel_(UniqueFd(::dup(socket)), UniqueFd(socket)) {}
  void send(const launch::MessageToLauncher& message) { channel_.send(message); }
  void flush() { channel_.flush(); }
  size_t num_unsent() const { return channel_.num_unsent(); }
  // Empty: it did not come in time.
  template <class Wanted>
  std::optional<Wanted> receive() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    while (!deadline.passed()) {
      while (auto message = channel_.next()) {
        if (std::holds_alternative<launch::Heartbeat>(*message)) send(launch::Heartbeat{});
        if (auto* wanted = std::get_if<Wanted>(&*message)) return std::move(*wanted);
      }
      launch::PollSet polls;
      polls.add(channel_.input(), POLLIN);
      polls.add(num_unsent() > 0 ? channel_.output() : -1, POLLOUT);
      polls.wait(deadline);
      flush();
      channel_.receive();
    }
    return std::nullopt;
  }

 private:
  launch::ChannelToLauncher channel_;
};

}  // namespace dslaunch::test
