#include "launch/terminal/tail.hpp"

#include <algorithm>
#include <vector>

#include "base/printable.hpp"

namespace dslaunch::launch {

static constexpr size_t kKeptBytes = 16384;
static constexpr size_t kMaxShownLine = 500;

void Tail::append(std::string_view bytes) {
  bytes_ += bytes.substr(bytes.size() - std::min(bytes.size(), kKeptBytes));
  if (bytes_.size() > 2 * kKeptBytes) bytes_.erase(0, bytes_.size() - kKeptBytes);
}

// Not inside a UTF-8 character.
static size_t end_of_character(const std::string& line, size_t most_bytes) {
  size_t end = most_bytes;
  while (end > 0 && end + 3 > most_bytes && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return end;
}

static std::string shown(std::string line) {
  // Only the last visible state of a progress bar.
  while (!line.empty() && line.back() == '\r') line.pop_back();
  line.erase(0, line.rfind('\r') + 1);
  const bool is_cut = line.size() > kMaxShownLine;
  if (is_cut) line.resize(end_of_character(line, kMaxShownLine));
  return printable(line, "\t") + (is_cut ? "..." : "");
}

std::string Tail::lines(int most) const {
  std::vector<std::string> all;
  for (size_t at = 0; at < bytes_.size();) {
    size_t end = std::min(bytes_.find('\n', at), bytes_.size());
    all.push_back(shown(bytes_.substr(at, end - at)));
    at = end + 1;
  }
  std::string text;
  size_t first = all.size() > static_cast<size_t>(most) ? all.size() - most : 0;
  for (size_t i = first; i < all.size(); ++i) text += (i == first ? "" : "\n") + all[i];
  return text;
}

}  // namespace dslaunch::launch
