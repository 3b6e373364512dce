// The encoding between launcher and agent: frames of a 4-byte little-endian length, a type byte and fields. Strings
// carry their length, so that they may contain NUL and newline. docs/control_channel.md.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "launch/channel/message.hpp"

namespace dslaunch::launch {

// A longer frame is not from dslaunch: some other program writes to the channel.
inline constexpr size_t kMaxFrameBytes = 64U << 20;

// What an agent started through a remote shell writes before its first frame.
inline constexpr std::string_view kAgentPreamble{"\0dslaunch agent\n", 16};

// The complete frame. Throws InternalError when it would exceed kMaxFrameBytes.
std::string encode(const MessageToAgent& message);
std::string encode(const MessageToLauncher& message);

// Bytes in, messages out. One thread. `Received`: MessageToAgent or MessageToLauncher.
template <class Received>
class FrameReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  // The next complete message; empty when more bytes are needed. Throws Error(70) that shows the first bytes when they
  // are not such a message, for example the greeting of a login shell.
  std::optional<Received> next();
  // Bytes of an incomplete frame.
  size_t num_pending() const { return buffer_.size() - begin_; }

 private:
  std::string buffer_;
  size_t begin_ = 0;
};

}  // namespace dslaunch::launch
