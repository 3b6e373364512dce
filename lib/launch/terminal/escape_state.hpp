// The state in which a stream leaves its terminal: after a stream that ended inside an escape sequence (an unterminated
// window title, for example) the terminal swallows the next output. Pure.
#pragma once
#include <string_view>

namespace dslaunch::launch {

class EscapeState {
 public:
  // CAN ends any sequence in VT500-like terminals, ST ends a string in others; outside a sequence neither is visible.
  static constexpr std::string_view kEnd = "\x18\x1b\\";

  void take(std::string_view bytes);
  // The stream ended inside a sequence.
  bool is_open() const { return state_ != State::kText && state_ != State::kC1; }
  // Bytes are missing from here on, so the stream may have ended inside a sequence.
  void lose() { state_ = State::kString; }
  // kEnd was written.
  void end() { state_ = State::kText; }

 private:
  enum class State {
    kText,
    kC1,        // the first byte of a C1 control in UTF-8
    kEscape,    // after ESC
    kControl,   // CSI: up to a final byte
    kString,    // OSC, DCS, SOS, PM or APC: up to ST, or BEL
    kStringC1,  // the same, possibly at a two-byte ST
  };
  State next(unsigned char byte) const;
  State after_introducer(unsigned char c1) const;

  State state_ = State::kText;
};

}  // namespace dslaunch::launch
