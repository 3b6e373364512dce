// Where a stream leaves the terminal that it is shown on: one that ended inside an escape sequence (a window's title
// without its end, say) makes the terminal swallow what is written next. Pure.
#pragma once
#include <string_view>

namespace dslaunch::launch {

class EscapeState {
 public:
  // CAN ends any sequence in terminals that follow the VT500, ST a string in the others; outside of one neither shows.
  static constexpr std::string_view kEnd = "\x18\x1b\\";

  void take(std::string_view bytes);
  // The stream ended inside a sequence.
  bool is_open() const { return state_ != State::kText && state_ != State::kC1; }
  // Bytes are missing from here on: it may have.
  void lose() { state_ = State::kString; }
  // kEnd was written.
  void end() { state_ = State::kText; }

 private:
  enum class State {
    kText,
    kC1,        // the first byte of a C1 control in UTF-8
    kEscape,    // behind ESC
    kControl,   // CSI: up to a final byte
    kString,    // OSC, DCS, SOS, PM or APC: up to ST, or BEL
    kStringC1,  // the same, perhaps at an ST of two bytes
  };
  State next(unsigned char byte) const;
  State after_introducer(unsigned char c1) const;

  State state_ = State::kText;
};

}  // namespace dslaunch::launch
