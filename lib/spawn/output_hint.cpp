#include "spawn/output_hint.hpp"

#include "base/format.hpp"

namespace dslaunch::spawn {
namespace {

// The text between `before` and `after`; empty when they do not follow each other on one line.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  size_t begin = text.rfind(before);
  if (begin == std::string::npos) return {};
  begin += before.size();
  size_t end = text.find(after, begin);
  if (end == std::string::npos || text.find('\n', begin) < end) return {};
  return text.substr(begin, end - begin);
}

}  // namespace

std::string hint_in_output_tail(const ExitCause& cause, const std::string& output_tail) {
  if (cause.kind != ExitCause::Kind::kExited || cause.number != 127) return {};
  std::string library =
      between(output_tail, "error while loading shared libraries: ", ": cannot open shared object file");
  if (library.starts_with("libtorch") || library.starts_with("libc10")) {
    return fmt::format(
        "LibTorch's {} is not found on this host; install PyTorch 2.11.0 with pip (or scripts/setup), activate its "
        "virtual environment, or set DSLAUNCH_TORCH_LIB (for other programs LD_LIBRARY_PATH) to its directory",
        library);
  }
  if (!library.empty()) {
    return fmt::format(
        "the shared library {} is not found on this host; install it, or add its directory to "
        "LD_LIBRARY_PATH (--env LD_LIBRARY_PATH=...)",
        library);
  }
  for (const auto& [open, close] : {std::pair{"env: '", "'"}, {"env: \u2018", "\u2019"}}) {
    std::string program = between(output_tail, open, close);
    if (!program.empty()) return fmt::format("'{}', which its #! line names, is not in any directory of PATH", program);
  }
  return {};
}

}  // namespace dslaunch::spawn
