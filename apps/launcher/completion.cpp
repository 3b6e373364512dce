#include "completion.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/format.hpp"
#include "base/split.hpp"
#include "commands.hpp"
#include "config/key_table.hpp"
#include "describe_command.hpp"
#include "help_topics.hpp"
#include "recorded_jobs.hpp"

namespace dslaunch::launcher {
namespace {

using command_line::OptionDescription;

// The words of a shell's line, the unfinished one last; it is empty behind a blank. Quotes need not be closed.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words{""};
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool is_escape = c == '\\' && quote != '\'' && i + 1 < line.size();
    if (is_escape) {
      words.back() += line[++i];
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string with_underscores(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

class Candidates {
 public:
  explicit Candidates(std::string prefix) : prefix_(std::move(prefix)) {}

  void add(const std::string& text, const std::string& about = "") {
    const auto is_same = [&](const Candidate& other) { return other.text == text; };
    if (text.starts_with(prefix_) && std::none_of(found_.begin(), found_.end(), is_same))
      found_.push_back({text, about});
  }
  std::vector<Candidate> take() && { return std::move(found_); }

 private:
  std::string prefix_;
  std::vector<Candidate> found_;
};

// --- Keys of the config ----------------------------------------------------------------------------------------------

// The values that a key names: of a switch, of an enumeration, "auto" where it means something of its own.
std::vector<std::string> values_of(const config::KeySpec& key) {
  std::vector<std::string> values;
  if (key.kind == config::Kind::kBool) values = {"true", "false"};
  if (key.kind == config::Kind::kEnum) {
    values = key.names != nullptr ? key.names() : split(key.values, '|');
    const auto later = split(key.later_values, '|');
    std::erase_if(values,
                  [&](const auto& value) { return std::find(later.begin(), later.end(), value) != later.end(); });
  }
  if (!key.auto_value.empty()) values.emplace_back("auto");
  return values;
}

// One level of sections at a time: "zero_optimization." for all keys below it. `end` follows a whole key.
std::vector<Candidate> complete_key(const std::string& typed, const std::string& end) {
  const size_t dot = typed.rfind('.');
  const std::string section = dot == std::string::npos ? "" : typed.substr(0, dot + 1);
  Candidates found(typed);
  for (const config::KeySpec* key : config::all_keys()) {
    const bool is_value = key->kind != config::Kind::kSection && key->kind != config::Kind::kNamed;
    if (!is_value || key->status != config::Status::kSupported || !key->path.starts_with(section)) continue;
    const std::string_view rest = key->path.substr(section.size());
    const size_t next = rest.find('.');
    if (rest.starts_with('*')) continue;
    if (next != rest.npos) {
      found.add(section + std::string(rest.substr(0, next + 1)));
    } else {
      found.add(std::string(key->path) + end, std::string(key->effect));
    }
  }
  return std::move(found).take();
}

std::vector<Candidate> complete_setting(const std::string& typed) {
  const size_t equals = typed.find('=');
  if (equals == std::string::npos) return complete_key(typed, "=");
  const std::string path = typed.substr(0, equals);
  const auto* alias = config::find_alias(path);
  const auto* key = config::find_key(alias != nullptr ? alias->path : std::string_view(path));
  Candidates found(typed);
  for (const auto& value : key != nullptr ? values_of(*key) : std::vector<std::string>{}) {
    found.add(fmt::format("{}={}", path, value));
  }
  return std::move(found).take();
}

// --- Options and arguments -------------------------------------------------------------------------------------------

std::vector<Candidate> complete_job(const std::string& typed) {
  Candidates found(typed);
  found.add("last", "the newest job");
  for (const auto& job : recorded_jobs()) {
    const auto& record = job.record;
    if (!record.name.empty()) found.add(record.name, record.run_dir);
    found.add(record.job_id, record.run_dir);
  }
  return std::move(found).take();
}

// By the name that the help has for the value: "auto|cpu|cuda" lists it, JOB, KEY and KEY=VALUE say where it is looked
// up; what is in capitals is something else, mostly a file.
std::vector<Candidate> complete_value(const std::string& kind, const std::string& typed) {
  if (kind == "KEY=VALUE") return complete_setting(typed);
  if (kind == "KEY") return complete_key(typed, "");
  const auto kinds = split(kind, '|');
  if (std::find(kinds.begin(), kinds.end(), "JOB") != kinds.end()) return complete_job(typed);
  Candidates found(typed);
  for (const auto& each : kinds) {
    const bool is_word = std::none_of(each.begin(), each.end(), [](unsigned char c) { return std::isupper(c) != 0; });
    if (is_word && kinds.size() > 1) found.add(each);
  }
  return std::move(found).take();
}

const OptionDescription* find_option(const std::vector<OptionDescription>& options, const std::string& word) {
  const std::string name = with_underscores(word);
  for (const auto& option : options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return &option;
  }
  return nullptr;
}

std::vector<Candidate> complete_option(const std::vector<OptionDescription>& options, const std::string& typed) {
  const size_t equals = typed.find('=');
  if (equals != std::string::npos) {
    const auto* option = find_option(options, typed.substr(0, equals));
    auto found = option == nullptr ? std::vector<Candidate>() : complete_value(option->value, typed.substr(equals + 1));
    for (auto& candidate : found) candidate.text.insert(0, typed.substr(0, equals + 1));
    return found;
  }
  // '-' and '_' are equal; who types one gets names with it.
  const bool has_dashes = typed.size() > 2 && typed.find('-', 2) != std::string::npos;
  Candidates found(typed);
  for (const auto& option : options) {
    if (option.is_positional) continue;
    for (std::string name : option.names) {
      if (!name.starts_with("--")) continue;
      if (has_dashes) std::replace(name.begin(), name.end(), '_', '-');
      found.add(name, option.help);
    }
  }
  return std::move(found).take();
}

std::vector<Candidate> complete_command_name(const std::string& typed) {
  Candidates found(typed);
  for (const auto& name : command_names()) found.add(name, about_command(listed_name(name)));
  return std::move(found).take();
}

std::vector<Candidate> complete_help(const std::string& typed) {
  Candidates found(typed);
  for (const auto& candidate : complete_command_name(typed)) found.add(candidate.text, candidate.about);
  for (const auto& topic : help_topics()) found.add(topic.name, topic.about);
  found.add(kAllOptions, "every option of run");
  return std::move(found).take();
}

std::vector<Candidate> complete_shell(const std::string& typed) {
  Candidates found(typed);
  for (const auto& shell : completion_scripts()) found.add(shell.name);
  return std::move(found).take();
}

std::vector<Candidate> complete_argument(const std::vector<OptionDescription>& options, const std::string& typed) {
  for (const auto& option : options) {
    if (!option.is_positional) continue;
    const bool is_listed = option.value.find('|') != std::string::npos;
    if (auto found = complete_value(is_listed ? option.value : option.names[0], typed); !found.empty()) return found;
  }
  return {};
}

bool takes_value(const OptionDescription* option) {
  return option != nullptr && !option->is_positional && !option->value.empty();
}

}  // namespace

std::vector<Candidate> complete(std::string_view line) {
  std::vector<std::string> words = words_of(line);
  const std::string typed = words.back();
  words.pop_back();
  if (words.empty() || std::find(words.begin(), words.end(), "--") != words.end()) return {};
  words.erase(words.begin());
  if (words.empty() && !typed.starts_with("-")) return complete_command_name(typed);
  const bool is_named = !words.empty() && find_command(words.front()) != nullptr;
  const std::string command = is_named ? words.front() : "run";
  if (command == "help" && words.size() == 1) return complete_help(typed);
  if (command == "completion" && words.size() == 1) return complete_shell(typed);
  const auto described = commands_with_options();
  if (std::find(described.begin(), described.end(), command) == described.end()) return {};
  const auto options = describe_command(command).options;
  const auto* before = words.empty() ? nullptr : find_option(options, words.back());
  if (takes_value(before)) return complete_value(before->value, typed);
  if (typed.starts_with("-")) return complete_option(options, typed);
  return complete_argument(options, typed);
}

}  // namespace dslaunch::launcher
