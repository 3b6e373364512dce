#include "launch/top/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

#include "base/write_all.hpp"

namespace dslaunch::launch {
namespace {

// The alternate screen without a cursor and without wrapping; and back.
constexpr const char* kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l";
constexpr const char* kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

void write(const std::string& bytes) {
  write_all(STDOUT_FILENO, bytes);  // a terminal that is gone: its end arrives as a signal
}

}  // namespace

Screen::Screen() {
  has_keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
  enter();
}

Screen::~Screen() {
  leave();
}

void Screen::enter() {
  if (std::exchange(is_shown_, true)) return;
  if (has_keys_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  write(kEnter);
}

void Screen::leave() {
  if (!std::exchange(is_shown_, false)) return;
  write(kLeave);
  if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

ScreenSize Screen::size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

void Screen::draw(const std::vector<std::string>& lines) {
  std::string out = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) out += (i > 0 ? "\r\n" : "") + lines[i] + "\x1b[K";
  write(out + "\x1b[J");
}

std::vector<Key> Screen::take_keys() {
  std::string bytes;
  char buffer[256];
  pollfd input{keys_fd(), POLLIN, 0};
  while (input.fd >= 0 && ::poll(&input, 1, 0) == 1) {
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got <= 0) {
      has_keys_ = false;  // the terminal is gone
      break;
    }
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return keys_in(bytes);
}

std::vector<Key> keys_in(const std::string& bytes) {
  constexpr std::pair<const char*, Key> kSequences[] = {
      {"\x1b[A", Key::kUp},      {"\x1b[B", Key::kDown},      {"\x1bOA", Key::kUp},  {"\x1bOB", Key::kDown},
      {"\x1b[5~", Key::kPageUp}, {"\x1b[6~", Key::kPageDown}, {"q", Key::kQuit},     {"Q", Key::kQuit},
      {"k", Key::kUp},           {"j", Key::kDown},           {" ", Key::kPageDown}, {"b", Key::kPageUp}};
  std::vector<Key> out;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = 1;
    Key key = Key::kOther;
    for (const auto& [sequence, its_key] : kSequences) {
      const std::string text = sequence;
      if (bytes.compare(at, text.size(), text) != 0) continue;
      key = its_key;
      length = text.size();
      break;
    }
    out.push_back(key);
    at += length;
  }
  return out;
}

}  // namespace dslaunch::launch
