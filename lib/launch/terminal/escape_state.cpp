#include "launch/terminal/escape_state.hpp"

namespace dslaunch::launch {
namespace {

constexpr unsigned char kBel = 0x07, kCan = 0x18, kSub = 0x1a, kEsc = 0x1b, kC1Lead = 0xc2;
// As C1 controls; after ESC their values are 0x40 less.
constexpr unsigned char kDcs = 0x90, kSos = 0x98, kCsi = 0x9b, kSt = 0x9c, kOsc = 0x9d, kPm = 0x9e, kApc = 0x9f;

}  // namespace

void EscapeState::take(std::string_view bytes) {
  while (!bytes.empty()) {
    // Most bytes are text.
    if (state_ == State::kText) {
      const size_t at = bytes.find_first_of("\x1b\xc2");
      if (at == std::string_view::npos) return;
      bytes.remove_prefix(at);
    }
    state_ = next(static_cast<unsigned char>(bytes.front()));
    bytes.remove_prefix(1);
  }
}

EscapeState::State EscapeState::next(unsigned char byte) const {
  if (byte == kCan || byte == kSub) return State::kText;
  if (byte == kEsc) return State::kEscape;  // inside a string it is the first half of ST, otherwise a new sequence
  switch (state_) {
    case State::kText:
      return byte == kC1Lead ? State::kC1 : State::kText;
    case State::kC1:
      return after_introducer(byte);
    case State::kEscape:
      if (byte >= 0x20 && byte < 0x30) return State::kEscape;  // intermediate byte, as of a character set
      return byte < 0x20 ? State::kEscape : after_introducer(byte + 0x40);
    case State::kControl:
      return byte >= 0x40 && byte < 0x7f ? State::kText : State::kControl;
    case State::kString:
      if (byte == kBel) return State::kText;
      return byte == kC1Lead ? State::kStringC1 : State::kString;
    case State::kStringC1:
      return byte == kSt || byte == kBel ? State::kText : State::kString;
  }
  return State::kText;
}

EscapeState::State EscapeState::after_introducer(unsigned char c1) const {
  switch (c1) {
    case kCsi:
      return State::kControl;
    case kDcs:
    case kSos:
    case kOsc:
    case kPm:
    case kApc:
      return State::kString;
    default:
      return State::kText;
  }
}

}  // namespace dslaunch::launch
