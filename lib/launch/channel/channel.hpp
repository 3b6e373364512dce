// One end of the conversation between launcher and agent over two non-blocking descriptors. Never blocks: what cannot
// be written yet is kept, and the owner polls. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/unique_fd.hpp"
#include "launch/channel/wire.hpp"
#include "spawn/greeting.hpp"

namespace dslaunch::launch {

class Channel {
 public:
  Channel(UniqueFd input, UniqueFd output);
  // What comes before kAgentMark on the input is no message: a login shell's greeting, the output of a .bashrc.
  void expect_greeting() { greeting_.emplace(std::string(kAgentMark)); }
  // The end of what came instead of the mark; empty once that was there.
  std::string noise() const { return greeting_ && !greeting_->over() ? greeting_->text() : std::string(); }

  void send(const Message& message);
  // Writes as much as fits. False once the other side is gone; what is left is dropped.
  bool flush();
  // Takes in what is there. False at the other side's end; messages that came before it are still to be had.
  bool receive();
  std::optional<Message> next() { return frames_.next(); }

  size_t num_unsent() const { return unsent_.size() - sent_; }
  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  void close_output() { output_.reset(); }

 private:
  UniqueFd input_, output_;
  std::optional<spawn::Greeting> greeting_;
  FrameReader frames_;
  std::string unsent_;
  size_t sent_ = 0;
};

}  // namespace dslaunch::launch
