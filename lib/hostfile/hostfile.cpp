#include "hostfile/hostfile.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/parse_int.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "hostfile/host_range.hpp"
#include "hostfile/plain_name.hpp"

namespace dslaunch::hostfile {
namespace {

constexpr size_t kMaxProblemsShown = 20;
constexpr size_t kMaxProblems = 100;  // parsing stops after this many
constexpr size_t kMaxSlotsInAll = size_t{1} << 20;
constexpr uint16_t kMaxPlausibleSlots = 512;
constexpr uint16_t kSshPort = 22;

struct Problem {
  int line;
  size_t column;  // from 1
  std::string message;
};

struct Word {
  std::string_view text;
  size_t column;
};

// The content of one line, before ranges are expanded into hosts.
struct Line {
  std::vector<std::string> names;
  std::string user;
  std::optional<uint16_t> port;
  std::optional<int> slots;
  bool may_mean_slots = false;
};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

// A '#' starts a comment at any position.
std::vector<Word> split_words(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<Word> words;
  for (size_t at = 0; at < line.size();) {
    if (is_blank(line[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < line.size() && !is_blank(line[end])) ++end;
    words.push_back({line.substr(at, end - at), at + 1});
    at = end;
  }
  return words;
}

class LineParser {
 public:
  LineParser(int number, std::vector<Problem>& problems) : number_(number), problems_(problems) {}

  // Empty when the line has a mistake (which has been recorded) or no host.
  std::optional<Line> parse(const std::vector<Word>& words) {
    if (words.empty()) return std::nullopt;
    size_t before = problems_.size();
    Line line;
    parse_host_word(words[0], line);
    line.may_mean_slots = words.size() == 1 && line.port.value_or(kSshPort) != kSshPort &&
                          *line.port <= kMaxPlausibleSlots && !line.names.empty() &&
                          line.names.front().find(':') == std::string::npos;
    for (size_t i = 1; i < words.size() && problems_.size() < kMaxProblems; ++i) parse_setting(words, i, line);
    if (line.slots && max_slots_ && *line.slots > *max_slots_) {
      note(words[0].column, fmt::format("slots={} is more than max_slots={}", *line.slots, *max_slots_));
    }
    if (problems_.size() != before) return std::nullopt;
    return line;
  }

 private:
  void note(size_t column, std::string message) {
    if (problems_.size() < kMaxProblems) problems_.push_back({number_, column, std::move(message)});
  }

  // [user@]name[:port], name possibly with ranges, or an IPv6 address in brackets.
  void parse_host_word(Word word, Line& line) {
    if (word.text.find('=') != std::string_view::npos) {
      note(word.column, fmt::format("expected a host name, got '{}': write 'NAME slots=N'", printable(word.text)));
      return;
    }
    size_t at_sign = word.text.find('@');
    if (at_sign != std::string_view::npos) {
      line.user = word.text.substr(0, at_sign);
      check_user(line.user, word.column);
      word = {word.text.substr(at_sign + 1), word.column + at_sign + 1};
    }
    if (is_bracketed_address(word.text)) {
      parse_bracketed_address(word, line);
    } else {
      parse_name(word, line);
    }
  }

  void check_user(std::string_view user, size_t column) {
    bool fine = !user.empty() && user[0] != '-' && std::all_of(user.begin(), user.end(), [](unsigned char c) {
      return std::isalnum(c) || std::string_view("._-+$\\").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (!fine) note(column, fmt::format("'{}' is not a user name", printable(user)));
  }

  static bool is_bracketed_address(std::string_view text) {
    return text.starts_with('[') && text.substr(0, text.find(']')).find(':') != std::string_view::npos;
  }

  void parse_bracketed_address(Word word, Line& line) {
    size_t close = word.text.find(']');
    if (close == std::string_view::npos) return note(word.column, "'[' is never closed");
    std::string address(word.text.substr(1, close - 1));
    in6_addr ignored;
    if (inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &ignored) != 1) {
      return note(word.column + 1, fmt::format("'{}' is not an IPv6 address", printable(address)));
    }
    line.names = {address};
    std::string_view rest = word.text.substr(close + 1);
    if (rest.empty()) return;
    if (rest[0] != ':')
      return note(word.column + close + 1, fmt::format("unexpected '{}' after the address", printable(rest)));
    set_port(rest.substr(1), word.column + close + 2, line);
  }

  // Where the first of several hosts ends; a comma in brackets belongs to a range.
  static size_t end_of_first_host(std::string_view text) {
    int depth = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '[') ++depth;
      if (text[at] == ']') --depth;
      if (text[at] == ',' && depth == 0) return at;
    }
    return std::string_view::npos;
  }

  // Open MPI's -H says HOST:SLOTS,HOST:SLOTS.
  void note_several_hosts(Word word, size_t end) {
    const std::string_view first = word.text.substr(0, end);
    const size_t colon = first.find(':');
    const auto slots = colon == std::string_view::npos ? std::nullopt : parse_int<int>(first.substr(colon + 1), 1);
    note(word.column, fmt::format("'{}' names several hosts: write one host per line, as in '{} slots={}'",
                                  printable(word.text), printable(first.substr(0, colon)), slots.value_or(1)));
  }

  void parse_name(Word word, Line& line) {
    if (const size_t end = end_of_first_host(word.text); end != std::string_view::npos) {
      return note_several_hosts(word, end);
    }
    size_t colon = word.text.find(':');
    if (colon != std::string_view::npos && word.text.find(':', colon + 1) != std::string_view::npos) {
      return note(word.column,
                  fmt::format("'{}': write an IPv6 address in brackets, as in [fe80::1]", printable(word.text)));
    }
    if (colon != std::string_view::npos) set_port(word.text.substr(colon + 1), word.column + colon + 1, line);
    auto names = expand_host_range(word.text.substr(0, colon));
    if (!names.ok()) return note(word.column + names.error().offset, names.error().message);
    // The names of one range differ in digits only, so checking the first one is enough.
    if (check_name(names->front(), word.column)) line.names = *std::move(names);
  }

  bool check_name(std::string_view name, size_t column) {
    if (name.empty()) {
      note(column, "the host has no name");
      return false;
    }
    if (name[0] == '-') {
      note(column, fmt::format("host name '{}' begins with '-'", printable(name)));
      return false;
    }
    if (name.size() > kMaxHostName) {
      note(column, fmt::format("the host name '{}...' is too long: {} characters (maximum {})",
                               printable(name.substr(0, 20)), name.size(), kMaxHostName));
      return false;
    }
    if (!is_host_name(name)) {
      note(column, fmt::format("'{}' is not a host name: letters, digits, '.', '-' and '_' only", printable(name)));
      return false;
    }
    return true;
  }

  void set_port(std::string_view text, size_t column, Line& line) {
    auto port = parse_int<long>(text);
    if (!port || *port < 1 || *port > 65535) {
      return note(column, fmt::format("port '{}' is not a number from 1 to 65535", printable(text)));
    }
    if (line.port) return note(column, "the port is given twice");
    line.port = static_cast<uint16_t>(*port);
  }

  void parse_setting(const std::vector<Word>& words, size_t index, Line& line) {
    const Word& word = words[index];
    size_t equals = word.text.find('=');
    if (equals == std::string_view::npos || equals == 0) return unexpected_word(words, index);
    std::string key(word.text.substr(0, equals));
    std::replace(key.begin(), key.end(), '-', '_');
    Word value{word.text.substr(equals + 1), word.column + equals + 1};
    if (key == "slots") {
      set_count("slots", value, line.slots);
    } else if (key == "max_slots") {
      set_count("max_slots", value, max_slots_);
    } else if (key == "port") {
      set_port(value.text, value.column, line);
    } else {
      note(word.column, fmt::format("unknown setting '{}'{}", printable(word.text.substr(0, equals)),
                                    did_you_mean(key, {"slots", "max_slots", "port"})));
    }
  }

  static bool is_setting_name(std::string_view text) {
    return text == "slots" || text == "max_slots" || text == "max-slots" || text == "port";
  }

  void unexpected_word(const std::vector<Word>& words, size_t index) {
    const Word& word = words[index];
    bool before_equals = index + 1 < words.size() && words[index + 1].text.starts_with('=');
    if (is_setting_name(word.text) && before_equals) {
      return note(word.column, fmt::format("blanks are not allowed around '=': write '{}=N'", word.text));
    }
    // The rest of 'slots = 2' or 'slots =2' is part of the mistake that is already reported.
    if (word.text.starts_with('=') && is_setting_name(words[index - 1].text)) return;
    if (words[index - 1].text.ends_with('=')) return;
    note(word.column, fmt::format("unexpected '{}': write 'HOST slots=N', one host per line", printable(word.text)));
  }

  void set_count(std::string_view key, Word value, std::optional<int>& out) {
    auto number = parse_int<long>(value.text);
    if (!number) {
      return note(value.column, fmt::format("{}='{}' is not a whole number", key, printable(value.text)));
    }
    if (*number == 0) {
      return note(value.column, fmt::format("{}=0: a host without slots is unused; remove the line", key));
    }
    if (*number < 0 || *number > kMaxSlots) {
      return note(value.column, fmt::format("{}={} is not between 1 and {}", key, value.text, kMaxSlots));
    }
    if (out) return note(value.column, fmt::format("{} is given twice", key));
    out = static_cast<int>(*number);
  }

  int number_;
  std::vector<Problem>& problems_;
  std::optional<int> max_slots_;
};

// Collects the hosts of all lines and joins repeated bare names.
class EntryList {
 public:
  explicit EntryList(std::vector<Problem>& problems) : problems_(problems) {}

  void add(const Line& line, int number, size_t column) {
    num_slots_ += line.names.size() * static_cast<size_t>(line.slots.value_or(1));
    if (too_many())
      return problems_.push_back({number, column, fmt::format("more than {} slots in all", kMaxSlotsInAll)});
    for (const auto& name : line.names) {
      if (problems_.size() >= kMaxProblems) return;
      auto [known, is_new] = index_.try_emplace(plain_name(name), entries_.size());
      if (is_new) {
        entries_.push_back({{name, line.user, line.port, first_slots(line.slots.value_or(1))},
                            number,
                            bool(line.slots),
                            line.may_mean_slots});
        bare_.push_back(!line.slots);
      } else {
        repeat(entries_[known->second], bare_[known->second], name, line, number, column);
      }
    }
  }

  bool too_many() const { return num_slots_ > kMaxSlotsInAll; }
  std::vector<Entry> take() { return std::move(entries_); }

 private:
  void repeat(Entry& first, bool first_is_bare, const std::string& name, const Line& line, int number, size_t column) {
    const std::string spelling = name == first.host.name ? "" : fmt::format(", as '{}'", first.host.name);
    const std::string again = fmt::format("host '{}' is already listed on line {}{}", name, first.line, spelling);
    if (line.slots || !first_is_bare) {
      problems_.push_back({number, column, again + ": give its slots once, on one line"});
    } else if (line.user != first.host.user || line.port != first.host.port) {
      problems_.push_back({number, column, again + ", with another user or port"});
    } else if (first.host.slots.size() >= static_cast<size_t>(kMaxSlots)) {
      problems_.push_back({number, column, fmt::format("host '{}' is listed too often", first.host.name)});
    } else {
      first.host.slots.push_back(static_cast<int>(first.host.slots.size()));
      first.slots_stated = true;
    }
  }

  std::vector<Problem>& problems_;
  std::vector<Entry> entries_;
  std::vector<bool> bare_;
  std::map<std::string, size_t> index_;  // by plain name
  size_t num_slots_ = 0;
};

[[noreturn]] void throw_problems(const std::vector<Problem>& problems, const std::string& path, bool all) {
  std::string message = fmt::format("hostfile {} is not usable:", path);
  for (size_t i = 0; i < problems.size() && i < kMaxProblemsShown; ++i) {
    message += fmt::format("\n  {}:{}:{}: {}", path, problems[i].line, problems[i].column, problems[i].message);
  }
  if (problems.size() > kMaxProblemsShown) {
    message += fmt::format("\n  and {}{} more", all ? "" : "at least ", problems.size() - kMaxProblemsShown);
  }
  throw UserError(ExitCode::kBadInput, message);
}

}  // namespace

bool is_host_name(std::string_view name) {
  return !name.empty() && name[0] != '-' && name.size() <= kMaxHostName &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '-' || c == '_'; });
}

std::vector<Entry> parse_hostfile(std::string_view text, const std::string& path) {
  std::vector<Problem> problems;
  EntryList entries(problems);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  int number = 0;
  while (!text.empty() && !entries.too_many() && problems.size() < kMaxProblems) {
    ++number;
    size_t end = std::min(text.find('\n'), text.size());
    std::vector<Word> words = split_words(text.substr(0, end));
    if (auto line = LineParser(number, problems).parse(words)) entries.add(*line, number, words[0].column);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!problems.empty()) throw_problems(problems, path, /*all=*/text.empty());
  std::vector<Entry> list = entries.take();
  if (list.empty()) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("hostfile {} names no host: write lines like 'node1 slots=8'", path));
  }
  return list;
}

std::string note_doubtful_ports(const std::vector<Entry>& entries, const std::string& path) {
  const auto doubtful = [](const Entry& entry) { return entry.port_may_mean_slots; };
  const auto first = std::find_if(entries.begin(), entries.end(), doubtful);
  if (first == entries.end()) return {};
  const auto others = std::count_if(first + 1, entries.end(), doubtful);
  return fmt::format(
      "hostfile {}:{}: '{}:{}' is SSH port {} and one slot{}: for {} slots write '{} slots={}', and 'port={}' if the "
      "port "
      "is meant",
      path, first->line, first->host.name, *first->host.port, *first->host.port,
      others == 0 ? "" : fmt::format(" (likewise {} more host{})", others, others == 1 ? "" : "s"), *first->host.port,
      first->host.name, *first->host.port, *first->host.port);
}

std::vector<Entry> read_hostfile(const std::string& path) {
  const SmallFile file = read_small_file(path);
  if (file.outcome.ok()) return parse_hostfile(file.bytes, path);
  throw UserError(file.too_large ? ExitCode::kBadInput : ExitCode::kNoInput,
                  fmt::format("cannot read the hostfile {}: {}", path, file.outcome.error()));
}

}  // namespace dslaunch::hostfile
