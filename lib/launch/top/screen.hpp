// A terminal's alternate screen, with keys as they are pressed: what stood there before comes back when this object
// goes, however it goes. One thread.
#pragma once
#include <termios.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::launch {

struct ScreenSize {
  size_t columns = 80, rows = 24;
};

enum class Key { kQuit, kUp, kDown, kPageUp, kPageDown, kOther };

class Screen {
 public:
  // Of standard output, which is a terminal; keys come from standard input where that is one too.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // The terminal as it was, and the screen again: around a stop by Ctrl-Z.
  void leave();
  void enter();

  static ScreenSize size();
  // Replaces what is shown, by one line for each row.
  void draw(const std::vector<std::string>& lines);

  // To poll for keys; -1: there are none.
  int keys_fd() const { return has_keys_ ? 0 : -1; }
  // All keys pressed since the last call. Never blocks.
  std::vector<Key> take_keys();

 private:
  bool is_shown_ = false;
  bool has_keys_ = false;
  termios before_{};
};

// The keys in what a terminal has sent. Pure.
std::vector<Key> keys_in(const std::string& bytes);

}  // namespace dslaunch::launch
