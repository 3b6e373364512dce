// The last lines of a stream, bounded. Pure.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

class Tail {
 public:
  void append(std::string_view bytes);
  // The last lines, without a newline at the end; control bytes other than tabs, and bytes that are not
  // UTF-8, are shown as \x1b, a line beyond 500 bytes is cut.
  std::string lines(int most = 20) const;

 private:
  std::string bytes_;
};

}  // namespace dslaunch::launch
