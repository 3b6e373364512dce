// Separates the records of the live line (base/live_progress.hpp) from what else a rank writes to the same stream.
// Pure.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

class LiveRecords {
 public:
  // A piece of ordinary text (`kind` 0), or the text of one record without mark, kind and line end.
  using Take = std::function<void(char kind, std::string_view text)>;

  // Text keeps its order with records. A record that is not complete yet waits for the rest.
  void cut(std::string_view bytes, const Take& take);
  // The stream has ended: what waits was not a record.
  void finish(const Take& take);

 private:
  // A line that begins with the mark and is longer is text.
  static constexpr size_t kMaxRecordBytes = 64U << 10;

  bool at_line_start_ = true;
  std::string record_;  // begun with the mark; empty: none
};

}  // namespace dslaunch::launch
