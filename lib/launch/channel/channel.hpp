// One end of the connection between launcher and agent, over two non-blocking descriptors. Never blocks: bytes that
// cannot be written yet are kept, and the owner polls. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/unique_fd.hpp"
#include "launch/channel/wire.hpp"
#include "spawn/greeting.hpp"

namespace dslaunch::launch {

template <class Sent, class Received>
class Channel {
 public:
  Channel(UniqueFd input, UniqueFd output);
  // Input before kAgentPreamble is not a message: a login shell's greeting, the output of a .bashrc.
  void expect_greeting() { greeting_.emplace(std::string(kAgentPreamble)); }
  // The end of the input that came instead of the mark; empty once the mark has arrived.
  std::string noise() const { return greeting_ && !greeting_->over() ? greeting_->text() : std::string(); }

  void send(const Sent& message);
  // Writes as much as fits. False once the peer is gone; the rest is dropped.
  bool flush();
  // Reads what has arrived. False when the peer has closed its end; next() still returns messages from before that.
  bool receive();
  std::optional<Received> next() { return frames_.next(); }

  size_t num_unsent() const { return unsent_.size() - sent_; }
  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  void close_output() { output_.reset(); }

 private:
  UniqueFd input_, output_;
  std::optional<spawn::Greeting> greeting_;
  FrameReader<Received> frames_;
  std::string unsent_;
  size_t sent_ = 0;
};

using ChannelToAgent = Channel<MessageToAgent, MessageToLauncher>;     // the launcher's end
using ChannelToLauncher = Channel<MessageToLauncher, MessageToAgent>;  // the agent's end

}  // namespace dslaunch::launch
