#include "launch/plan/cpu_list.hpp"

#include <charconv>
#include <optional>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Result<std::vector<int>, CpuListError> read() {
    do {
      size_t item = at_;
      int first = number();
      int last = take('-') ? number() : first;
      append(item, first, last);
    } while (ok() && take(','));
    if (ok() && at_ < text_.size()) fail(at_, fmt::format("unexpected '{}'", text_[at_]));
    if (!ok()) return Failure{std::move(*error_)};
    return std::move(cpus_);
  }

 private:
  bool ok() const { return !error_; }

  bool take(char wanted) {
    if (!ok() || at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  int number() {
    int value = -1;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range || value > kHighestCpu) {
      fail(at_, fmt::format("core number out of range (maximum {})", kHighestCpu));
    } else if (error != std::errc() || value < 0) {
      fail(at_, "expected a core number");
    } else {
      at_ = end - text_.data();
    }
    return value;
  }

  void append(size_t item, int first, int last) {
    if (!ok()) return;
    if (last < first) return fail(item, fmt::format("the range {}-{} is descending", first, last));
    int before = cpus_.empty() ? -1 : cpus_.back();
    if (first <= before) {
      return fail(item, fmt::format("core {} follows core {}: cores must ascend, without duplicates", first, before));
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus_.push_back(cpu);
  }

  // Later errors are consequences of the first one.
  void fail(size_t offset, std::string message) {
    if (ok()) error_ = CpuListError{std::move(message), offset};
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<int> cpus_;
  std::optional<CpuListError> error_;
};

}  // namespace

Result<std::vector<int>, CpuListError> read_cpu_list(std::string_view text) {
  if (text.empty()) return std::vector<int>();
  return Reader(text).read();
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (size_t begin = 0, end; begin < cpus.size(); begin = end) {
    end = begin + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cpus[begin]);
    if (end > begin + 1) text += '-' + std::to_string(cpus[end - 1]);
  }
  return text;
}

}  // namespace dslaunch::launch
