// The live line at the bottom of a terminal. It shows where a training run is, redrawn with each report of rank 0
// and below whatever else is written meanwhile. The layout is pure; LiveLine keeps what is on the screen. One thread.
#pragma once
#include <optional>
#include <string>

#include "base/live_progress.hpp"

namespace dslaunch::launch {

// At most `columns` - 1 characters of ASCII: in the last column some terminals wrap. What has no room is left out, the
// least important first; step and loss stay longest.
std::string layout(const LiveProgress& progress, int columns);

class LiveLine {
 public:
  void set(const LiveProgress& progress) { progress_ = progress; }
  bool has_progress() const { return progress_.has_value(); }
  bool is_drawn() const { return drawn_length_ > 0; }
  // The width has changed since it was drawn.
  bool is_outdated(int columns) const { return is_drawn() && columns != drawn_columns_; }
  // Bytes that draw it where the cursor is, in column 0. Empty: nothing to show.
  std::string draw(int columns);
  // Bytes that remove it and leave the cursor in column 0 where it began; empty if it is not drawn. A terminal that has
  // become narrower has wrapped it meanwhile.
  std::string erase(int columns);
  // Bytes that leave it where it is, as it is, and end the line; afterwards there is nothing to show.
  std::string keep(int columns);
  // The terminal did not get what was drawn.
  void lose() { drawn_length_ = 0; }

 private:
  std::optional<LiveProgress> progress_;
  int drawn_length_ = 0, drawn_columns_ = 0;  // length 0: not drawn
};

// The terminal's width; 80 if it does not say.
int columns_of(int fd);

}  // namespace dslaunch::launch
